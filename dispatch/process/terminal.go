package process

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is lent to a process by the one that had its foreground.
type terminal struct {
	file *os.File
	own  int // the lender's group
}

// terminalOf is the terminal at f if the caller's group is in its foreground;
// else nil, and there is nothing to lend.
func terminalOf(f *os.File) *terminal {
	own := unix.Getpgrp()
	front, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil || front != own {
		return nil
	}
	return &terminal{f, own}
}

// give puts a group into the foreground.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // or the group has ended
}

// has reports whether a group is in the foreground.
func (t *terminal) has(group int) bool {
	front, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && front == group
}

// take takes the foreground back. Who is not in it is stopped for that unless
// it ignores the signal, which must not last: what it starts would inherit it.
func (t *terminal) take() {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own) // or it is gone
}

// Stopped tells, for a process that was given a terminal, that it has been
// stopped, as by Ctrl-Z. The caller is to stop as well, between TakeTerminal
// and GiveTerminal, so that whoever started it takes over.
func (p *Process) Stopped() <-chan struct{} { return p.stops }

func (p *Process) tellStop(by syscall.Signal) {
	if (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && p.term.has(p.id.pid) {
		// It was faster than Start, which had yet to give it the terminal.
		_ = syscall.Kill(-p.id.pid, syscall.SIGCONT)
		return
	}
	select {
	case p.stops <- struct{}{}:
	default: // it is told already
	}
}

// TakeTerminal takes the terminal back, if the process was given one.
func (p *Process) TakeTerminal() {
	if p.term != nil {
		p.term.take()
	}
}

// GiveTerminal gives the process its terminal again, if the caller is in the
// foreground, and lets it run on.
func (p *Process) GiveTerminal() {
	if p.term == nil {
		return
	}
	if terminalOf(p.term.file) != nil {
		p.term.give(p.id.pid)
	}
	_ = p.Signal(syscall.SIGCONT) // or it has ended
}
