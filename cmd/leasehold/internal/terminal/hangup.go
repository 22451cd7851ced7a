package terminal

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Unignored leaves out SIGHUP if this process ignores it, because nohup started it.
// [signal.Notify] would end that, also for what this process starts. The other signals are
// obeyed even so: a shell without job control makes what it starts with & ignore Ctrl-C.
func Unignored(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, func(s os.Signal) bool { return s == syscall.SIGHUP && signal.Ignored(s) })
}

// UntilHangup returns a context that ends when the terminal is closed, too. It is for what
// should not just be killed then: a daemon that was started by hand, which nobody else
// starts again, and commands that have something to finish or to remove. Under nohup they
// stay.
//
// Until stop is called, a repeated SIGTERM or SIGHUP changes nothing: two commands may stop
// a daemon at once, timeout sends its signal to the process and to its group, and both the
// kernel and a shell report a terminal that is closed.
func UntilHangup(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	repeated := make(chan os.Signal, 1)
	signal.Notify(repeated, syscall.SIGTERM) // none is read; the default would end the process
	cancel := func() {}
	if !signal.Ignored(syscall.SIGHUP) {
		ctx, cancel = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	return ctx, func() { cancel(); signal.Stop(repeated) }
}

// UntilQuit returns a context that SIGQUIT ends, so that the caller can leave the alternate
// screen. Then stop ends the process by that signal.
func UntilQuit(ctx context.Context) (_ context.Context, stop func()) {
	quit, cancel := signal.NotifyContext(ctx, syscall.SIGQUIT)
	return quit, func() {
		quitted := quit.Err() != nil && ctx.Err() == nil
		cancel()
		if quitted {
			endBy(syscall.SIGQUIT)
		}
	}
}

// ignoredInterrupt is whether this process was started to ignore Ctrl-C. It is read first,
// because [signal.Ignored] reports false after main has called [signal.Notify].
var ignoredInterrupt = signal.Ignored(syscall.SIGINT)

// EndByInterrupt ends this process by SIGINT if it is in the foreground of a terminal. A shell
// ends its script or its loop only if Ctrl-C ended what it waits for. After an exit code of 130
// it goes on with the next command. Some of the three files may be redirected, for example
// to a log. The first process of a container is not ended by a signal of its own, and neither
// is a process that a shell without job control has started with &.
func EndByInterrupt() {
	at := func(f *os.File) bool { return Is(f) && foreground(f) }
	if (at(os.Stdin) || at(os.Stdout) || at(os.Stderr)) && !ignoredInterrupt && os.Getpid() != 1 {
		endBy(syscall.SIGINT)
	}
}

// endBy ends this process by a signal, so that whoever waits for it sees that signal.
func endBy(s syscall.Signal) {
	signal.Reset(s)
	_ = syscall.Kill(os.Getpid(), s) // a process may signal itself
	select {}                        // another thread may get it
}
