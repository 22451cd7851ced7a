package terminal

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendThread sends a signal to the calling thread.
func sendThread(s syscall.Signal) error { return unix.Tgkill(os.Getpid(), unix.Gettid(), s) }
