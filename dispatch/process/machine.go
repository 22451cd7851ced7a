package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"sync"

	"github.com/leasehold/leasehold/engine/clock"
)

// Machine identifies the machine (since its last boot) and the container in
// which a pid of this process is valid.
var Machine = sync.OnceValue(func() string { return clock.Boot() + " " + Container() })

// Container identifies the container in which a pid of this process is valid, among those
// of this machine. It is "" on systems without namespaces.
var Container = sync.OnceValue(func() string {
	space, _ := os.Readlink("/proc/self/ns/pid")
	return space
})

// Sees reports whether a pid means the same here and for another process of this machine,
// which is given by its pid here. For a process outside of this container that pid is 0.
func Sees(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return true // there are no namespaces, or nothing says so
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return pid != 0 && (err != nil || its == own)
}

// Mark names a running process of this machine where its pid means nothing, as to a
// server elsewhere: no other process of any machine has the same. It tells nothing of
// the process; "" if there is none.
func Mark(pid int) string {
	p := Find(pid)
	if p.PID == 0 {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", Machine(), p.PID, p.Start))
	return hex.EncodeToString(sum[:markBytes])
}

const markBytes = 16
