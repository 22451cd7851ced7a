package engine

import (
	"context"
	"errors"
	"time"
)

// ErrWait is what a look of [Await] answers while there is nothing to tell.
var ErrWait = errors.New("engine: wait on")

// Await calls look until it answers anything but [ErrWait]: at once, after each
// change that watch tells of, and when patience is over, then with last true.
// The end of ctx ends it with ctx's cause. The caller starts the watch before
// Await and stops it after, so no change falls between a look and the wait.
//
// It is the only loop in which a call waits for the state to change.
func Await(ctx context.Context, watch *Watch, patience time.Duration, look func(last bool) error) error {
	err := look(patience <= 0)
	if patience <= 0 || !errors.Is(err, ErrWait) {
		return err
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		select {
		case <-watch.C:
			err = look(false)
		case <-over.C:
			return look(true)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !errors.Is(err, ErrWait) {
			return err
		}
	}
}
