package memory

import (
	"context"
	"time"

	"github.com/leasehold/leasehold/engine"
)

func (e *Engine) WaitDue(ctx context.Context) error {
	watch := e.alarm.Watch("")
	defer watch.Stop()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		due, left, err := e.look()
		if err != nil || due {
			return err
		}
		var past <-chan time.Time
		if left > 0 {
			past = time.After(left)
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

// look reports whether a row is due or the wall clock was stepped. Otherwise
// left is the time until the next look; 0 is never.
//
// The alarm is armed under the lock. A transaction that adds an earlier due
// time either came before, and then the index has it, or comes after, and then
// rings the alarm. A failure or a Close after the check for a refusal rings it
// too. A caller that armed it before, for an earlier time, has its own timer
// for that.
func (e *Engine) look() (due bool, left time.Duration, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tended = true
	first := e.set.firstDue()
	e.armed = first
	if err := e.refusalLocked(); err != nil {
		return false, 0, err
	}
	now, wall := e.clock.read()
	by, stepped := e.clock.stepped(now, wall)
	if stepped {
		e.recordClockLocked(now, wall)
		e.settleSoonLocked()
		e.logf("engine: the wall clock was set %s; leases, claims and delays keep their length, and what is planned for a time of day follows the wall clock", steppedBy(by))
	}
	if first == never {
		return stepped, 0, nil
	}
	left = max(time.Duration(first-now.UnixNano()+1), 1) // a row is due only after its instant
	if e.clock.Sleeps {
		left = min(left, time.Second)
	}
	return stepped || first < now.UnixNano(), left, nil
}
