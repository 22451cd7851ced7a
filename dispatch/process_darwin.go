package dispatch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// look asks the kernel for a process. A zombie has ended.
func look(pid int) (p Process, ok bool) {
	const zombie = 5 // SZOMB of sys/proc.h
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(info.Proc.P_pid) != pid || info.Proc.P_stat == zombie {
		return p, false
	}
	session, err := unix.Getsid(pid)
	if err != nil {
		return p, false
	}
	start := fmt.Sprintf("%d.%06d", info.Proc.P_starttime.Sec, info.Proc.P_starttime.Usec)
	return Process{
		Peer:   Peer{PID: pid, Start: start},
		Parent: int(info.Eproc.Ppid), Group: int(info.Eproc.Pgid), Session: session,
	}, true
}
