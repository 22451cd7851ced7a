package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitForeground stops the process, as its terminal would, if it is in the
// background, so that it does not draw over the work of others. Whoever sets
// the terminal's mode in the background is stopped again each time it is
// continued, before it could obey the SIGTERM that came with that, as timeout
// and kill %1 send it. AwaitForeground looks for the end of ctx in between, and
// lets the end of ctx also restore the terminal from the background.
func AwaitForeground(ctx context.Context, out *os.File) {
	context.AfterFunc(ctx, func() { signal.Ignore(syscall.SIGTTOU) })
	if foreground(out) {
		return
	}
	_ = syscall.Kill(0, syscall.SIGTTOU)
	for range 200 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
		if foreground(out) {
			return
		}
	}
}

func foreground(out *os.File) bool {
	front, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPGRP)
	return err != nil || front == unix.Getpgrp()
}
