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
// the wait. While Await waits, the caller gives back its [Turn], and it looks only
// in its turn to look.
//
// This is the only loop in which a call waits for a change of the state.
func Await(ctx context.Context, watch *Watch, patience time.Duration, look func(last bool) error) error {
	if patience <= 0 {
		return look(true)
	}
	turn, last := TurnOf(ctx), false
	look = inTurn(turn, look)
	err := look(false)
	if !errors.Is(err, ErrWait) {
		return err
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	for errors.Is(err, ErrWait) && !last {
		turn.Pause()
		select {
		case <-watch.C:
		case <-over.C:
			last = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := turn.Resume(); err != nil {
			return err
		}
		err = look(last)
	}
	return err
}

func inTurn(turn Turn, look func(last bool) error) func(last bool) error {
	return func(last bool) error {
		if err := turn.Look(); err != nil {
			return err
		}
		defer turn.Looked()
		return look(last)
	}
}
