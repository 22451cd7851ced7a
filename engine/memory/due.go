package memory

import (
	"context"
	"sync"
	"time"
)

// WaitDue implements [engine.Engine].
func (e *Engine) WaitDue(ctx context.Context) error {
	steps := -1 // of the wall clock, before
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w, err := e.look()
		if err != nil {
			return err
		}
		if w.due || w.stepped || steps >= 0 && steps != w.steps {
			return nil
		}
		steps = w.steps
		if err := w.sleep(ctx); err != nil {
			return err
		}
	}
}

// A wait is what there is to wait for.
type wait struct {
	due     bool          // nothing: a row is due
	stepped bool          // nothing: the wall clock was stepped since the last look
	steps   int           // of the wall clock, ever
	last    time.Duration // until it is time to look again; 0 is never
	rung    <-chan struct{}
}

// look tells what there is to wait for.
//
// The alarm is armed under the lock: a transaction that brings an earlier due
// time comes before, and is in the index, or after, and finds the alarm. A
// failure or Close that comes after the refusal was asked for finds it too.
func (e *Engine) look() (w wait, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	first := e.set.firstDue()
	w.rung = e.alarm.arm(first)
	if err := e.refusalLocked(); err != nil {
		return w, err
	}
	now, wall := e.clock.read()
	if by, stepped := e.clock.stepped(now, wall); stepped {
		w.stepped = true
		e.logf("engine: the wall clock was set %s; leases, claims and delays keep their length, and what is planned for a time of day follows the wall clock", steppedBy(by))
		e.alarm.ring()
	}
	w.steps = e.clock.steps
	if first == never {
		return w, nil
	}
	w.due = first < now.UnixNano()
	w.last = max(time.Duration(first-now.UnixNano()+1), 1) // strictly past
	if first-now.UnixNano() < 0 && !w.due {
		w.last = 1<<63 - 1 // the difference wraps: centuries away
	}
	if tick := e.clock.tick(); tick > 0 {
		w.last = min(w.last, tick)
	}
	return w, nil
}

// sleep returns once it is time to look again, or an error when ctx has ended.
func (w wait) sleep(ctx context.Context) error {
	var past <-chan time.Time
	if w.last > 0 {
		timer := time.NewTimer(w.last)
		defer timer.Stop()
		past = timer.C
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-past:
	case <-w.rung:
	}
	return nil
}

// An alarm rings for those in WaitDue when what they sleep for has changed.
type alarm struct {
	mu   sync.Mutex
	rung chan struct{} // closed when it rings; nil when nobody waits
	due  int64         // what the last to arm it sleeps for
}

// arm gives a channel that is closed when a due time before due appears. One
// who armed it earlier, for an earlier time, has a timer of his own for that.
func (a *alarm) arm(due int64) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung == nil {
		a.rung = make(chan struct{})
	}
	a.due = due
	return a.rung
}

// set rings if due is earlier than what those who wait know of.
func (a *alarm) set(due int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung != nil && due < a.due {
		a.ringLocked()
	}
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ringLocked()
}

func (a *alarm) ringLocked() {
	if a.rung != nil {
		close(a.rung)
		a.rung = nil
	}
}
