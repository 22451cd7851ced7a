package engine

import (
	"context"
	"errors"
	"time"
)

// ErrWait is returned by the look function of [Await] to continue waiting.
var ErrWait = errors.New("engine: wait on")

// Await calls look until it returns anything but [ErrWait]: at once, after each
// change that watch reports, and finally when patience is over, with last set.
// If ctx ends, Await returns its cause. The caller starts the watch before
// Await and stops it afterwards, so that no change is missed between look and
// the wait.
//
// This is the only loop in which a call waits for a change of the state.
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
