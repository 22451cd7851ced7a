package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// await waits for the end of the process and reaps it: there is no way here to
// learn how a process ended and leave it. Its pid is not given to another as
// long as there is a process in the session or the group it led.
func (p *Process) await() {
	defer close(p.done)
	options := 0
	if p.term != nil {
		options = unix.WUNTRACED
	}
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(p.id.pid, &status, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // somebody else has reaped it
			p.exit = exited(-1)
		case status.Stopped():
			p.tellStop(status.StopSignal())
			continue
		case status.Signaled():
			p.exit = killed(status.Signal())
		default:
			p.exit = exited(status.ExitStatus())
		}
		return
	}
}

// reapLocked lets go of what is reaped already.
func (p *Process) reapLocked() {
	if !p.reaped {
		p.reaped = true
		_ = p.cmd.Process.Release()
	}
}
