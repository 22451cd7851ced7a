package pebble

import (
	"context"
	"time"
)

// WaitDue implements [engine.Engine].
func (e *Engine) WaitDue(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		w, err := e.lookAhead()
		switch {
		case err != nil:
			return err
		case w.due:
			return nil
		case w.drawing: // others may have had the lock
			continue
		}
		if err := w.sleep(ctx); err != nil {
			return err
		}
	}
}

// A wait is what there is to wait for.
type wait struct {
	due     bool // nothing: there is a row that is due
	drawing bool // nothing: there is more to draw
	rung    <-chan struct{}
	now, at int64
}

// lookAhead draws some of what is due soon, and tells what there is to wait for.
//
// The alarm is armed under the lock: a transaction that brings an earlier due
// time comes before, and is in the order, or after, and finds the alarm. A
// failure or Close that comes after the refusal was asked for finds it too.
func (e *Engine) lookAhead() (wait, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.now()
	w := wait{now: now.UnixNano()}
	all := e.mem.due.draw(w.now+drawAhead, drawStep)
	w.at = e.wakeLocked(now)
	w.rung = e.alarm.arm(w.at)
	if err := e.refusalLocked(); err != nil {
		return w, err
	}
	due := e.mem.due.first()
	w.drawing = !all
	if w.due = all && e.pace.next(due) < w.now; w.due {
		e.pace.answered(due, w.now)
	}
	return w, nil
}

// wakeLocked gives when whoever waits is to look again.
func (e *Engine) wakeLocked(now time.Time) int64 {
	e.mem.due.fill(now.UnixNano() + drawAhead)
	return min(e.pace.next(e.mem.due.first()), e.mem.due.nextDraw())
}

// sleep returns once the time is past, or the alarm has rung, or ctx has ended,
// and an error in the last case.
func (w wait) sleep(ctx context.Context) error {
	var past <-chan time.Time
	if w.at != never {
		// Strictly past. A sum that wraps is centuries away.
		d := time.Duration(w.at - w.now + 1)
		if d <= 0 {
			d = 1<<63 - 1
		}
		timer := time.NewTimer(d)
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
