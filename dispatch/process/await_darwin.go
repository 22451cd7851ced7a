package process

import (
	"errors"

	"golang.org/x/sys/unix"
)

// await waits for the end of the process and reaps it, because macOS has no way
// to read how a process ended without reaping it. The system does not reuse the
// pid as long as the session or the group that it led has a process.
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
		case err != nil: // another part of the program has reaped it
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

// reapLocked only releases the process, because await has already reaped it.
func (p *Process) reapLocked() {
	if !p.reaped {
		p.reaped = true
		_ = p.cmd.Process.Release()
	}
}
