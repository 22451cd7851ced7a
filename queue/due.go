package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// dueBatch bounds how many rows and tasks one transaction sees to, so that
	// nobody waits behind all that is due at once.
	dueBatch = 256

	// wallStep is by how much the wall clock moves against the running clock in a
	// step. Less than that is the usual correction.
	wallStep = time.Second
)

// TendDue does, in one transaction, some of what is due: of the queues, and of the
// leases, since the end of a claim is a matter of both. A due row of another
// package is an error.
func (q *Queue) TendDue(ctx context.Context) error {
	var offset time.Duration
	err := q.update(ctx, nil, func(tx *ledger) error {
		if offset = tx.Wall().Sub(tx.Now()); (offset - time.Duration(q.offset.Load())).Abs() >= wallStep {
			replan(tx)
		}
		room := dueBatch
		for row := range tx.Due() {
			n, err := q.tend(tx, row, room)
			if room -= n; err != nil || room <= 0 || tx.Spent() {
				return err
			}
		}
		return nil
	})
	if err == nil {
		q.offset.Store(int64(offset))
	}
	return err
}

// passOver raises the lower bounds of indexes whose first entries the store cannot
// read: over as many as it has to, since damage is mostly of a whole block. What is
// passed over is counted until nothing else is left there. It answers fault if
// there is no such index.
func (q *Queue) passOver(ctx context.Context, fault error) error {
	var list []index
	err := q.eng.Snapshot(ctx, func(tx engine.Tx) error {
		for row := range tx.Scan(accountPrefix) {
			for _, in := range indexesOf(line(row.Key)) {
				if book := (&ledger{Tx: tx, q: q}); *book.accountOf(in.line).stats.of(in.state, in.priority) > 0 {
					list = append(list, in)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, in := range list {
		bound, ok, err := q.readable(ctx, in, "")
		if err != nil {
			return err
		}
		if ok {
			continue
		}
		// A tail begins with a number. This finds the last one from which on the
		// entries cannot be read, bit by bit.
		at := record.ReadFixed((bound + strings.Repeat("\x00", 8))[:8])
		for step := uint64(1) << 62; step > 0; step >>= 1 {
			if _, ok, err = q.readable(ctx, in, record.Fixed(at+step)); err != nil {
				return err
			}
			if !ok {
				at += step
			}
		}
		fault = q.update(ctx, nil, func(tx *ledger) error { in.setLowerBound(tx, record.Fixed(at+1)); return nil })
	}
	return fault
}

// readable reports whether the store can read the first entry from a tail on, or
// from the index's lower bound, which it gives.
func (q *Queue) readable(ctx context.Context, in index, from string) (bound string, ok bool, err error) {
	err = q.eng.Snapshot(ctx, func(tx engine.Tx) error {
		bound = in.lowerBound(&ledger{Tx: tx, q: q})
		for range tx.ScanFrom(in.prefix, in.prefix+max(bound, from)) {
			break
		}
		return nil
	})
	if errors.Is(err, engine.ErrCorrupt) {
		return bound, false, nil
	}
	return bound, err == nil, err
}

// tend does what a due row wants, for up to room tasks, and says how many it saw
// to: delays end, finished tasks are forgotten, dropped queues are taken apart.
func (q *Queue) tend(tx *ledger, row engine.Row, room int) (n int, err error) {
	switch {
	case strings.HasPrefix(row.Key, accountPrefix):
		return q.tendLine(tx, line(row.Key), room), nil
	case row.Key == replanKey:
		return q.tendPlans(tx, row, room), nil
	case strings.HasPrefix(row.Key, dropPrefix):
		return q.tendDropped(tx, row, room), nil
	case call.Tend(tx, row), q.core.Tend(tx, row):
		return 1, nil
	}
	return 0, fmt.Errorf("queue: row %q is due and nobody's", row.Key)
}

// tendLine ends delays, and forgets finished tasks, up to room of them, and plans
// when the queue is looked at next. What is due in an index is read before any of
// it is moved.
func (q *Queue) tendLine(tx *ledger, l line, room int) (n int) {
	a := tx.accountOf(l)
	a.due, a.planned = time.Time{}, true
	for _, state := range []State{Delayed, Completed, Failed, Dead, Cancelled, corruptState} {
		if *a.stats.of(state, 0) == 0 {
			continue
		}
		some := false
		for _, in := range indexesOfState(l, state) {
			due, next := in.dueNow(tx, room-n)
			for _, row := range due {
				q.tendEntry(tx, in, row)
			}
			if n += len(due); !next.IsZero() {
				a.wanted(tx, next, in.byWall)
			}
			some = some || len(due) > 0 || !next.IsZero()
		}
		if !some {
			a.none(state, 0)
		}
	}
	return n + 1
}

// tendEntry does what is due for the task of an entry.
func (q *Queue) tendEntry(tx *ledger, in index, row engine.Row) {
	var t Task
	switch {
	case !in.taskAt(tx, row, &t):
		q.lose(tx, in, row)
	case t.State == Delayed:
		removeFromIndex(tx, &t)
		t.note(tx, event.Event{Kind: event.TaskReady})
		q.schedule(tx, &t, 0)
	default:
		forget(tx, &t)
	}
}

// dueNow gives up to most entries of an index by time that are due, and when the
// next is due, if there is one. It raises the lower bound over those it gives.
func (in index) dueNow(tx *ledger, most int) (due []engine.Row, next time.Time) {
	now := tx.Now()
	if in.byWall {
		now = tx.Wall()
	}
	tail := ""
	for row := range in.entries(tx) {
		at, ok := in.at(row)
		if !ok {
			continue // Check reports it
		}
		tail = in.tail(row)
		if !at.Before(now) || len(due) >= most { // a row is due after its instant
			next = at
			break
		}
		if due = append(due, row); tx.careful {
			next = at // there may be more
		}
	}
	if tail = min(tail, atTime(now, uuid.Nil)); tail > in.lowerBound(tx) { // an entry that is added from here on lowers it again
		in.setLowerBound(tx, tail)
	}
	return due, next
}

// The wall clock may be stepped, and rows are due by the running clock. So after a
// step, and after a restart, each queue is planned anew.

func replan(tx engine.Tx) { tx.Touch(engine.Row{Key: replanKey, Due: tx.Now().Add(-1)}) }

// tendPlans plans the queues from the one that row names, for up to room tasks.
func (q *Queue) tendPlans(tx *ledger, row engine.Row, room int) (n int) {
	for queue := range tx.ScanFrom(accountPrefix, row.Value) {
		if n >= room {
			tx.Touch(engine.Row{Key: row.Key, Value: queue.Key, Due: row.Due})
			return n
		}
		n += q.tendLine(tx, line(queue.Key), room-n)
	}
	tx.Delete(row.Key)
	return n + 1
}

// Drop removes all queues of a run, in the transaction that removes the run and
// in those that follow. Nobody can name a task of it any more, so what is left of
// them is only room on the disk. The sessions of the run have ended, or will.
func (q *Queue) Drop(tx engine.Tx, run uuid.UUID) {
	dropPauses(tx, run)
	for range tx.Scan(string(lineOf(run, ""))) {
		tx.Put(engine.Row{Key: dropKey(run), Due: tx.Now()})
		return
	}
}

// tendDropped forgets up to room tasks of a dropped run. Those that are in
// progress wait for the end of their claims.
func (q *Queue) tendDropped(tx *ledger, row engine.Row, room int) (n int) {
	claims := false
	for queue := range tx.Scan(accountPrefix + row.Key[len(dropPrefix):]) {
		if n >= room {
			return n // still due
		}
		l := line(queue.Key)
		n += q.dropLine(tx, l, room-n) + 1
		claims = claims || tx.accountOf(l).stats.InProgress > 0
	}
	if claims {
		tx.Touch(engine.Row{Key: row.Key, Due: tx.Now().Add(time.Second)})
	} else if n < room {
		tx.Delete(row.Key)
	}
	return n + 1
}

func (q *Queue) dropLine(tx *ledger, l line, room int) (n int) {
	a := tx.accountOf(l)
	a.moved = true
	for _, in := range indexesOf(l) {
		if in.state == Ready && a.stats.Ready[in.priority] == 0 {
			continue
		}
		for row := range in.entries(tx) {
			if n == room {
				return n
			}
			n++
			in.setLowerBound(tx, in.tail(row))
			var t Task
			if in.taskAt(tx, row, &t) {
				forget(tx, &t)
				continue
			}
			q.lose(tx, in, row)
			if id, ok := in.id(row); ok {
				forgetRows(tx, id)
			}
		}
	}
	if a.stats.InProgress == 0 { // whatever corrupt tasks have left of the counts
		a.stats, a.bytes = Stats{Queue: a.stats.Queue}, 0
	}
	return n
}

// Recover readies the queues of a state just opened. It reads the records that
// are not cold: one that cannot be read is an [engine.ErrCorrupt] with its key.
// Check reads the others.
func (q *Queue) Recover(ctx context.Context) error {
	return q.eng.Update(ctx, func(tx engine.Tx) error {
		if err := checkRows(tx); err != nil {
			return err
		}
		queues := make(map[uuid.UUID]uint64)
		for row := range tx.Scan(accountPrefix) {
			var a account
			a.read(tx, line(row.Key))
			q.place = max(q.place, a.last)
			queues[a.line.run()]++
			if a.actor != uuid.Nil {
				queues[a.actor]++
			}
		}
		for of, n := range queues {
			tx.Touch(engine.Row{Key: queuesKey(of), Value: record.Fixed(n)})
		}
		q.offset.Store(int64(tx.Wall().Sub(tx.Now())))
		if len(queues) > 0 {
			replan(tx)
		}
		return nil
	})
}

// checkRows reads every record that is not cold and outlives a restart.
func checkRows(tx engine.Tx) error {
	var faults []error
	for row := range tx.Scan(accountPrefix) {
		name := row.Key[len(accountPrefix):]
		if len(name) <= 16 || !isName(name[16:]) || !new(account).decode(row.Value) {
			faults = append(faults, corrupt(row.Key))
		}
	}
	for row := range tx.Scan(dropPrefix) {
		if len(row.Key) != len(dropPrefix)+16 {
			faults = append(faults, corrupt(row.Key))
		}
	}
	return errors.Join(faults...)
}
