package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrInterrupted is why a run did not begin.
var ErrInterrupted = errors.New("interrupted before the run began")

// beginUnlessInterrupted is begin, which the first interrupt ends: it may be
// waiting for a daemon, or for what an earlier life has left. One that comes
// as the run has begun is heeded then.
func (l *Launcher) beginUnlessInterrupted(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, heard := make(chan struct{}), make(chan struct{})
	go func() { // ends with begin
		defer close(heard)
		select {
		case <-l.opts.Interrupts:
			l.interrupts++
			cancel(ErrInterrupted)
		case <-done:
		}
	}()
	err := l.begin(ctx)
	close(done)
	<-heard
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}

// heedInterrupts ends the run step by step, and when its time is up. The daemon
// is told meanwhile, by calls in g: it may be away, and a run that is to end
// does not wait for it.
func (l *Launcher) heedInterrupts(ctx context.Context, g *errgroup.Group) {
	var patience, limit <-chan time.Time
	if d := seconds(l.opts.Manifest.Run.TimeoutSecs); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		limit = timer.C
	}
	const interrupted = "the run was interrupted"
	first := func() {
		l.event(Event{Event: Draining, Text: fmt.Sprintf(
			"interrupted: nothing new is started, agents have %v to finish; again to end them now", l.grace)})
		l.drain(ctx, g, interrupted, false)
		timer := time.NewTimer(l.grace)
		context.AfterFunc(ctx, func() { timer.Stop() })
		patience = timer.C
	}
	if l.interrupts > 0 { // as it began
		first()
	}
	for {
		select {
		case <-l.opts.Interrupts:
			l.interrupts++
			switch l.interrupts {
			case 1:
				first()
			case 2:
				l.drain(ctx, g, interrupted, true)
			default:
				l.kill()
			}
		case <-patience:
			l.drain(ctx, g, interrupted, true)
		case <-limit:
			l.event(Event{Event: Draining, Text: fmt.Sprintf("the run's time is up, %v", seconds(l.opts.Manifest.Run.TimeoutSecs))})
			l.drain(ctx, g, "the run's time was up", true)
		case <-ctx.Done():
			return
		}
	}
}

// drain has the daemon let nobody spawn any more. With stop every agent is
// stopped, here: the daemon does so for those whose order is still with it.
func (l *Launcher) drain(ctx context.Context, g *errgroup.Group, reason string, stopped bool) {
	g.Go(func() error {
		err := l.link.call(ctx, "operator_run_drain", map[string]any{"run": l.run, "reason": reason, "stop": stopped}, nil)
		if ctx.Err() != nil {
			return nil // the run is over
		}
		return err
	})
	if stopped {
		l.askAll(stop{Status: "cancelled", Reason: reason})
	}
}

// kill ends every process of the run without another word.
func (l *Launcher) kill() {
	l.mu.Lock()
	select {
	case <-l.hurry:
		l.mu.Unlock()
		return
	default:
		close(l.hurry)
	}
	l.mu.Unlock()
	l.askAll(stop{Status: "cancelled", Reason: "the run was killed"})
}

// askAll asks every agent to end. Each lead waits for those below it.
func (l *Launcher) askAll(o stop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.agents {
		a.ask(o)
	}
}
