package dispatch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// processStart names the instant at which a process started. A zombie has
// ended.
func processStart(pid int) (string, bool) {
	const zombie = 5 // SZOMB of sys/proc.h
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return "", false
	}
	return fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec), true
}
