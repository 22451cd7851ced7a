package process

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// await waits for the end of the process and leaves it a zombie. As long as it
// is a zombie, the system reuses neither its pid nor the ids of the session and
// the group that it led.
func (p *Process) await() {
	defer close(p.done)
	what := unix.WEXITED | unix.WNOWAIT
	if p.term != nil {
		what |= unix.WSTOPPED
	}
	for {
		code, status, err := waitid(p.id.pid, what)
		const exitedByItself, stopped = 1, 5 // CLD_EXITED, CLD_STOPPED
		switch {
		case err != nil: // another part of the program has reaped it
			p.exit = exited(-1)
		case code == stopped:
			// Consume this state; otherwise waitid would report it again and
			// again.
			_, _, _ = waitid(p.id.pid, unix.WSTOPPED|unix.WNOHANG)
			p.tellStop(syscall.Signal(status))
			continue
		case code == exitedByItself:
			p.exit = exited(int(status))
		default:
			p.exit = killed(syscall.Signal(status))
		}
		return
	}
}

func waitid(pid, options int) (code, status int32, err error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, options, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, 0, err
		}
	}
	// The fields after Code depend on the signal, and x/sys does not define
	// them. For SIGCHLD they are pid, uid and status, aligned like a pointer.
	type child struct{ pid, uid, status int32 }
	const offset = (unsafe.Offsetof(info.Code) + unsafe.Sizeof(info.Code) + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return info.Code, (*child)(unsafe.Add(unsafe.Pointer(&info), offset)).status, nil
}

// reapLocked reaps the process, which frees its pid.
func (p *Process) reapLocked() {
	if !p.reaped {
		p.reaped = true
		reapChild(p.id.pid, func() { _ = p.cmd.Wait() }) // how it ended is already known
	}
}
