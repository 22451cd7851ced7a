package process

import (
	"os"
	"sync"

	"github.com/leasehold/leasehold/engine/clock"
)

// Machine identifies the machine (since its last boot) and the container in
// which a pid of this process is valid.
var Machine = sync.OnceValue(func() string {
	space, _ := os.Readlink("/proc/self/ns/pid") // "" on systems without namespaces
	return clock.Boot() + " " + space
})
