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

// awaitParent returns an error when the process that started this one has
// ended, and nil if ctx ends first. A parent-death signal would not do on
// Linux: it is sent when the parent's thread ends, not the parent.
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
