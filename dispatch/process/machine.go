package process

import (
	"os"
	"sync"

	"github.com/leasehold/leasehold/engine/clock"
)

// Machine names where pids mean what they mean here: this machine since its start,
// and this container of it.
var Machine = sync.OnceValue(func() string {
	space, _ := os.Readlink("/proc/self/ns/pid") // "" where there are no such things
	return clock.Boot() + " " + space
})
