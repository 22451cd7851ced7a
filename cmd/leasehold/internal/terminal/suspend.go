package terminal

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Suspend stops this process and its group as Ctrl-Z does, and returns when they continue.
// If no shell controls them, they are not stopped, and it returns after a moment.
func Suspend() error {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-resumed:
	case <-time.After(200 * time.Millisecond): // the signal did not stop this process
	}
	return nil
}

// stop stops this process, if a shell is there to continue it. Go ignores SIGTSTP once a
// program has caught it, so this takes SIGSTOP. It is sent to the calling thread, which
// does nothing more before it is stopped.
func stop() {
	parent := os.Getppid()
	session, err := unix.Getsid(parent)
	if own, ownErr := unix.Getsid(0); err != nil || ownErr != nil || session != own {
		return
	}
	if group, err := unix.Getpgid(parent); err != nil || group == unix.Getpgrp() {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = sendThread(syscall.SIGSTOP) // if it fails, the process is not stopped
}
