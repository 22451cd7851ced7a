package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// interrupted is why agents are ended after an interrupt.
const interrupted = "the run was interrupted"

// ErrInterrupted says that a run was interrupted before it began.
var ErrInterrupted = errors.New("interrupted before the run began")

// unlessInterrupted runs do, which the first interrupt ends: do may be waiting for a
// daemon, for the processes of an earlier life, or for another's run. If do succeeds just
// when an interrupt comes, the caller handles that.
func (l *Launcher) unlessInterrupted(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, heard := make(chan struct{}), make(chan struct{})
	go func() { // ends with do
		defer close(heard)
		select {
		case <-l.opts.Interrupts:
			l.interrupts++
			cancel(ErrInterrupted)
		case <-done:
		}
	}()
	err := do(ctx)
	close(done)
	<-heard
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}

// heedInterrupts ends the run step by step after interrupts, or when its time
// is over. It tells the daemon by calls in g, because the daemon may be away
// and ending the run does not wait for it.
func (l *Launcher) heedInterrupts(ctx context.Context, g *errgroup.Group) {
	var patience, limit <-chan time.Time
	if d := seconds(l.opts.Manifest.Run.TimeoutSecs); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		limit = timer.C
	}
	first := func() {
		l.draining.Store(true)
		l.event(Event{Event: Draining, Text: fmt.Sprintf(
			"interrupted: nothing new is started, agents have %v to finish; again to end them now", l.grace)})
		l.drain(ctx, g, interrupted, false)
		l.settled()
		timer := time.NewTimer(l.grace)
		context.AfterFunc(ctx, func() { timer.Stop() })
		patience = timer.C
	}
	if l.interrupts > 0 { // it came during begin
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

// drain makes the daemon refuse further spawns. If stopped is true, the
// launcher also stops every agent here, and the daemon those whose orders it
// still has.
func (l *Launcher) drain(ctx context.Context, g *errgroup.Group, reason string, stopped bool) {
	g.Go(func() error {
		err := l.link.call(ctx, "operator_run_drain", map[string]any{"run": l.run, "reason": reason, "stop": stopped}, nil)
		if ctx.Err() != nil {
			return nil // the run is over
		}
		return err
	})
	if stopped {
		l.askAll(stopOrder(reason))
	}
}

// kill ends every process of the run without a grace.
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
	l.part()
	l.askAll(stopOrder("the run was killed"))
}

// part makes the launcher wait only for a short time for a daemon that does not answer. What
// that daemon is not told, it learns from the dispatch that resumes the run.
func (l *Launcher) part() { l.parts.Do(func() { close(l.parting) }) }

// settled parts soon if the run was interrupted and none of its processes is left here.
// Until then a daemon that is away may come back.
func (l *Launcher) settled() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining.Load() && l.running == 0 {
		time.AfterFunc(promptly, l.part)
	}
}

// promptly is how soon a daemon answers that has little to do.
const promptly = time.Second

// askAll asks every agent to end. Each lead waits for the agents below it.
func (l *Launcher) askAll(o tools.Stop) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.agents {
		a.ask(o)
	}
}
