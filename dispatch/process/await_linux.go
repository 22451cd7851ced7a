package process

import (
	"errors"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// await waits for the end of the process and leaves it a zombie: as long as it
// is one, its pid and with it the session and the group it led are no others'.
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
		case err != nil: // somebody else has reaped it
			p.exit = exited(-1)
		case code == stopped:
			// Taken, or it would be told again and again.
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
	// What is behind the code depends on the signal and has no fields in
	// x/sys. For SIGCHLD it is pid, uid and status, aligned as a pointer is.
	type child struct{ pid, uid, status int32 }
	const offset = (unsafe.Offsetof(info.Code) + unsafe.Sizeof(info.Code) + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
	return info.Code, (*child)(unsafe.Add(unsafe.Pointer(&info), offset)).status, nil
}

// reapLocked gives the pid back.
func (p *Process) reapLocked() {
	if !p.reaped {
		p.reaped = true
		reapChild(p.id.pid, func() { _ = p.cmd.Wait() }) // how it ended is known
	}
}
