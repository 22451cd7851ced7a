package shim

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitDesertion returns when the process that started this one has ended or
// nobody reads stdout any more, or nil when ctx ends first. Many clients are
// killed without closing anything, and wrappers may keep a pipe open.
func awaitDesertion(ctx context.Context, stdout *os.File) error {
	parent := os.Getppid()
	pidfd, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) && parent != 0 {
			return errOrphaned
		}
		return awaitParent(ctx) // an old kernel, or a parent in another namespace
	}
	defer unix.Close(pidfd)
	if os.Getppid() != parent {
		return errOrphaned // it went between, and the pid may be another's
	}
	fds := []unix.PollFd{
		{Fd: int32(pidfd), Events: unix.POLLIN},
		{Fd: int32(stdout.Fd())}, // errors and hang-ups are told unasked
	}
	for ctx.Err() == nil {
		const look = 500 // ms, at ctx
		if _, err := unix.Poll(fds, look); err != nil && !errors.Is(err, unix.EINTR) {
			return awaitParent(ctx)
		}
		if fds[0].Revents != 0 {
			return errOrphaned
		}
		if fds[1].Revents != 0 {
			return errUnheard
		}
	}
	return nil
}
