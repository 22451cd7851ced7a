//go:build !linux

package terminal

import (
	"os"
	"syscall"
)

// sendThread sends a signal to the process: there is no call for a thread here.
func sendThread(s syscall.Signal) error { return syscall.Kill(os.Getpid(), s) }
