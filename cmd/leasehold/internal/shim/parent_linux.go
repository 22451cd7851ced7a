package shim

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// awaitDesertion returns an error when the process that started this one has
// ended or stdout has no reader any more, and nil if ctx ends first. Many
// clients are killed without closing anything, and wrappers may keep a pipe
// open.
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
		return errOrphaned // it has ended meanwhile, and its pid may have been reused
	}
	fds := []unix.PollFd{
		{Fd: int32(pidfd), Events: unix.POLLIN},
		{Fd: int32(stdout.Fd())}, // errors and hang-ups are always reported
	}
	for ctx.Err() == nil {
		const look = 500 // ms between checks of ctx
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
