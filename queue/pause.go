package queue

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

// A paused queue gives no task to any claim. Tasks can still be enqueued and
// finished, and claims wait in its line. When it is resumed, those claims get
// the ready tasks in order.

const (
	pausePrefix = "paused/"
	pauseFormat = 1
)

// Kinds of the answers of Pause and Resume, which are whether the queue has
// changed.
const (
	pausing  call.Kind = "pause"
	resuming call.Kind = "resume"
)

// MaxPauseReason is the longest reason of a pause, in bytes.
const MaxPauseReason = 256

func pauseKey(l line) string { return pausePrefix + l.name() }

func isPaused(tx engine.Tx, l line) bool {
	_, ok := tx.Get(pauseKey(l))
	return ok
}

// readPause sets in s whether the queue is paused, and why.
func (s *Stats) readPause(tx engine.Tx, l line) {
	row, ok := tx.Get(pauseKey(l))
	if !ok {
		return
	}
	s.Paused = true
	if r := record.Read(row.Value); r.Byte() == pauseFormat {
		s.PauseReason = r.Text()
	}
}

// Pause pauses a queue that has tasks, until it is resumed. It reports whether
// the queue was not paused before. If it was, the new reason replaces the old
// one. A call that is sent again gets the same answer.
func (q *Queue) Pause(ctx context.Context, run uuid.UUID, queue, by, reason string) (paused bool, err error) {
	if err := CheckName("queue", queue); err != nil {
		return false, err
	}
	if len(reason) > MaxPauseReason {
		return false, argumentError("reason", "must be at most %d bytes", MaxPauseReason)
	}
	l, c := lineOf(run, queue), call.Of(ctx)
	return paused, q.update(ctx, nil, func(tx *ledger) error {
		answer, answered, err := c.Answered(tx, pausing)
		if answered || err != nil {
			paused = answer != ""
			return err
		}
		if _, err := accountAt(tx.Tx, run, queue); err != nil {
			return err
		}
		paused = !isPaused(tx, l)
		w := record.New(2 + len(reason))
		w.Byte(pauseFormat)
		w.Text(reason)
		tx.Put(engine.Row{Key: pauseKey(l), Value: w.String()})
		event.Record(tx, run, event.Event{Kind: event.QueuePaused, Queue: queue, Path: by, Reason: reason})
		c.Record(tx, pausing, changed(paused), 0)
		return nil
	})
}

// changed returns the answer of a Pause or Resume.
func changed(did bool) string {
	if did {
		return "changed"
	}
	return ""
}

// Resume ends the pause of a queue, and gives ready tasks to the claims that
// wait. It reports whether the queue was paused. A pause outlasts the queue's
// tasks, so a queue is unknown only if it has neither. If one transaction
// cannot give all, the queue stays paused between transactions, so that no
// other claim gets ahead. A call that is sent again gets the same answer.
func (q *Queue) Resume(ctx context.Context, run uuid.UUID, queue, by string) (resumed bool, err error) {
	if err := CheckName("queue", queue); err != nil {
		return false, err
	}
	l, c := lineOf(run, queue), call.Of(ctx)
	for more := true; more && err == nil; {
		err = q.update(ctx, nil, func(tx *ledger) error {
			more = false
			answer, answered, err := c.Answered(tx, resuming)
			if answered || err != nil {
				resumed = answer != ""
				return err
			}
			pause, paused := tx.Get(pauseKey(l))
			if !paused {
				if _, err = accountAt(tx.Tx, run, queue); err == nil {
					c.Record(tx, resuming, changed(false), 0)
				}
				return err
			}
			tx.Delete(pause.Key)
			if more = q.handOut(tx, l); more {
				tx.Put(pause)
				return nil
			}
			event.Record(tx, run, event.Event{Kind: event.QueueResumed, Queue: queue, Path: by})
			resumed = true
			c.Record(tx, resuming, changed(true), 0)
			return nil
		})
	}
	return resumed, err
}

// handOut gives ready tasks to the claims that wait for them, for as long as
// one transaction may take. It reports whether there is more to give.
func (q *Queue) handOut(tx *ledger, l line) (more bool) {
	for tx.accountOf(l).stats.ReadyTotal() > 0 {
		w := q.nextWaiter(tx, l)
		if w == nil {
			return false
		}
		tasks := q.take(tx, w)
		if len(tasks) == 0 {
			w.joinLines(tx) // what was ready could not be read, and has been set aside
			return false
		}
		w.answer(tx, tasks...)
		if tx.Spent() {
			return true
		}
	}
	return false
}

func dropPauses(tx engine.Tx, run uuid.UUID) {
	for row := range tx.Scan(pauseKey(lineOf(run, ""))) {
		tx.Delete(row.Key)
	}
}
