package process

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the foreground of a terminal, lent to a process by the process
// that had it.
type terminal struct {
	file *os.File
	own  int // the group of the lender
}

// terminalOf returns the terminal at f if the caller's group is in its
// foreground, and otherwise nil.
func terminalOf(f *os.File) *terminal {
	own := unix.Getpgrp()
	front, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil || front != own {
		return nil
	}
	return &terminal{f, own}
}

// give makes group the foreground group.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // an error means that the group has ended
}

// has reports whether group is the foreground group.
func (t *terminal) has(group int) bool {
	front, err := unix.IoctlGetInt(int(t.file.Fd()), unix.TIOCGPGRP)
	return err == nil && front == group
}

// take takes the foreground back. A background process that does so is stopped
// unless it ignores SIGTTOU. The signal is ignored only briefly, because
// processes that are started would inherit that.
func (t *terminal) take() {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, t.own) // an error means that the terminal is gone
}

// Stopped receives a value when a process that was given the terminal has been
// stopped, for example by Ctrl-Z. The caller should then stop itself as well,
// after TakeTerminal and before GiveTerminal, so that the shell that started it
// takes over.
func (p *Process) Stopped() <-chan struct{} { return p.stops }

func (p *Process) tellStop(by syscall.Signal) {
	if (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && p.term.has(p.id.pid) {
		// It read before Start had given it the terminal.
		_ = syscall.Kill(-p.id.pid, syscall.SIGCONT)
		return
	}
	select {
	case p.stops <- struct{}{}:
	default: // already pending
	}
}

// GotTerminal reports whether the process was given the terminal, so that keys such as
// Ctrl-C send their signals to it and not to the caller.
func (p *Process) GotTerminal() bool { return p.term != nil }

// TakeTerminal takes the terminal back, if the process was given one.
func (p *Process) TakeTerminal() {
	if p.term != nil {
		p.term.take()
	}
}

// GiveTerminal gives the process the terminal again, if the caller is in the
// foreground, and continues it.
func (p *Process) GiveTerminal() {
	if p.term == nil {
		return
	}
	if terminalOf(p.term.file) != nil {
		p.term.give(p.id.pid)
	}
	_ = p.Signal(syscall.SIGCONT) // an error means that it has ended
}
