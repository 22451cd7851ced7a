package server

import (
	"fmt"
	"os"

	"github.com/leasehold/leasehold/dispatch"
)

// admit refuses the processes of other users. The mode of the socket keeps
// them out too, except root, and except for the instant between its creation
// and its chmod.
func admit(pid, uid int) (dispatch.Peer, error) {
	if uid != os.Getuid() {
		return dispatch.Peer{}, fmt.Errorf("process %d is of user %d, and this daemon serves user %d alone", pid, uid, os.Getuid())
	}
	peer := dispatch.ProcessOf(pid)
	peer.Transport = "unix"
	return peer, nil
}
