package server

import (
	"fmt"
	"os"

	"github.com/leasehold/leasehold/dispatch/process"
)

// admit refuses processes of other users. The mode of the socket keeps them out
// as well, except for root, and except for the instant between its creation and
// its chmod.
func admit(pid, uid int) (process.Peer, error) {
	if uid != os.Getuid() {
		return process.Peer{}, fmt.Errorf("process %d belongs to user %d, and this daemon serves only user %d", pid, uid, os.Getuid())
	}
	peer := process.Find(pid).Peer
	if peer.PID == 0 && pid != 0 {
		// The ancestors of such a process cannot be determined.
		if process.Hidden(pid) {
			return process.Peer{}, fmt.Errorf("the daemon cannot read /proc/%d: it is not mounted, or the daemon has too many open files", pid)
		}
		return process.Peer{}, fmt.Errorf("process %d has connected and is gone", pid)
	}
	peer.Transport = "unix"
	return peer, nil
}
