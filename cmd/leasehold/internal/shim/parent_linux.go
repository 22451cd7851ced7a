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
	// A pipe ends the wait when ctx ends. A wait with a time-out would wake every
	// idle shim again and again.
	over, end, err := os.Pipe()
	if err != nil {
		return awaitParent(ctx)
	}
	defer over.Close()
	defer end.Close()
	defer context.AfterFunc(ctx, func() { _ = end.Close() })()
	fds := []unix.PollFd{
		{Fd: int32(pidfd), Events: unix.POLLIN},
		{Fd: int32(stdout.Fd())}, // errors and hang-ups are always reported
		{Fd: int32(over.Fd())},
	}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return awaitParent(ctx)
		}
		switch {
		case fds[0].Revents != 0:
			return errOrphaned
		case fds[1].Revents != 0:
			return errUnheard
		case fds[2].Revents != 0:
			return nil
		}
	}
}
