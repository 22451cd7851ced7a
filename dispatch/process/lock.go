package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// Locked reports whether another process has a lock of a file. A process that has
// one itself must not ask: closing the file would release it.
func Locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}
