package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// send signals exactly this process. The pidfd is opened before the start time
// is compared, so either it refers to this process for good, or the comparison
// fails.
func (id identity) send(s syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil: // the kernel has no pidfds, or no descriptor is left
		if !id.there() {
			return nil
		}
		return unlessGone(syscall.Kill(id.pid, s))
	}
	defer unix.Close(fd)
	if !id.there() {
		return nil
	}
	err = unix.PidfdSendSignal(fd, s, nil, 0)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // so do the rules of some containers
		err = syscall.Kill(id.pid, s)
	}
	return unlessGone(err)
}
