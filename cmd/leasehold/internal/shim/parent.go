package shim

import (
	"context"
	"errors"
	"os"
	"time"
)

var (
	errOrphaned = errors.New("the process that started this one has ended")
	errUnheard  = errors.New("standard output is closed")
)

// awaitParent returns when the process that started this one has ended, or nil
// when ctx ends first. A death signal would do on Linux, but it is sent when
// the parent's thread ends, not the parent.
func awaitParent(ctx context.Context) error {
	parent := os.Getppid()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	return errOrphaned
}
