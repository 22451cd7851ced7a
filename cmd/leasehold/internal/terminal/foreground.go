package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// AwaitForeground waits until the process may use its terminal, or ctx ends. In the
// background, as below timeout or after &, it would draw over the work of others. And
// the terminal stops whoever sets its mode from there, again each time it is continued,
// before it could obey the SIGTERM that came with that. Afterwards it is not stopped so,
// since it may have to restore the mode from the background.
func AwaitForeground(ctx context.Context, out *os.File) {
	defer signal.Ignore(syscall.SIGTTOU)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for !foreground(out) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

func foreground(out *os.File) bool {
	front, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPGRP)
	return err != nil || front == unix.Getpgrp()
}
