package process

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// send signals the process that was seen, and no other. The pidfd is opened
// before the start time is compared: it is either that process's for good, or
// the comparison tells.
func (id identity) send(s syscall.Signal) error {
	fd, err := unix.PidfdOpen(id.pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil: // a kernel without it, or no descriptor left
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
	if errors.Is(err, unix.ENOSYS) {
		err = syscall.Kill(id.pid, s)
	}
	return unlessGone(err)
}
