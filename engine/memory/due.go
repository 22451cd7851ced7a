package memory

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/engine"
)

func (e *Engine) WaitDue(ctx context.Context) error {
	watch := e.alarm.Watch("")
	defer watch.Stop()
	steps := -1 // of the wall clock, as counted at the last look
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w, err := e.look()
		if err != nil || w.due || steps >= 0 && steps != w.steps {
			return err
		}
		steps = w.steps
		var past <-chan time.Time
		if w.last > 0 {
			past = time.After(w.last)
		}
		select {
		case <-ctx.Done():
		case <-past:
		case <-watch.C:
		}
	}
}

// untendedLocked refuses an Update of a state in which nothing ever ends,
// because nobody has called WaitDue.
func (e *Engine) untendedLocked(now time.Time) error {
	switch {
	case e.set.firstDue() >= now.UnixNano():
		return nil
	case e.dueSince.IsZero():
		e.dueSince = now
		return nil
	case now.Sub(e.dueSince) <= engine.UntendedFor:
		return nil
	}
	return engine.ErrUntended
}

// A wait is what WaitDue waits for.
type wait struct {
	due   bool          // a row is due, or the wall clock was stepped: there is nothing to wait for
	steps int           // how often the wall clock was stepped, ever
	last  time.Duration // until the next look; 0 is never
}

// look returns what to wait for.
//
// The alarm is armed under the lock. A transaction that adds an earlier due
// time either came before, and then the index has it, or comes after, and then
// rings the alarm. A failure or a Close after the check for a refusal rings it
// too. A caller that armed it before, for an earlier time, has its own timer
// for that.
func (e *Engine) look() (w wait, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tended = true
	first := e.set.firstDue()
	e.armed = first
	if err := e.refusalLocked(); err != nil {
		return w, err
	}
	now, wall := e.clock.read()
	if by, stepped := e.clock.stepped(now, wall); stepped {
		w.due = true
		e.recordClockLocked(now, wall)
		e.settleSoonLocked()
		e.logf("engine: the wall clock was set %s; leases, claims and delays keep their length, and what is planned for a time of day follows the wall clock", steppedBy(by))
		e.alarm.NotifyAll()
	}
	w.steps = e.clock.steps
	if first == never {
		return w, nil
	}
	w.due = w.due || first < now.UnixNano()
	w.last = max(time.Duration(first-now.UnixNano()+1), 1) // a row is due only after its instant
	if e.clock.Sleeps {
		w.last = min(w.last, time.Second)
	}
	return w, nil
}
