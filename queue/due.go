package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// dueBatch is the most rows and tasks that one transaction handles, so that
	// other calls do not wait for everything that is due at once. After each
	// dueStep of them it ends if it has taken long.
	dueBatch = 256
	dueStep  = 16

	// wallStep is how much the wall clock must move against the running clock
	// to count as a step. A smaller move is a normal correction.
	wallStep = time.Second
)

// TendDue handles some of the due rows in one transaction: those of queues and
// those of leases, since the end of a claim concerns both. A due row of another
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
			if room -= n; err != nil || tx.Spent() || room <= 0 {
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

// passOver raises the lower bounds of indexes whose first entries the store
// cannot read. It skips as many as necessary, since damage mostly covers a
// whole block. Skipped tasks stay in the counts until nothing else is left in
// the index. It returns fault if it can raise none.
func (q *Queue) passOver(ctx context.Context, fault error) error {
	var list []index
	err := q.eng.Snapshot(ctx, func(tx engine.Tx) error {
		for row := range tx.Scan(accountPrefix) {
			var a account
			a.read(tx, line(row.Key))
			for _, in := range indexesOf(a.line) {
				if *a.stats.of(in.state, in.priority) > 0 {
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
		past, ok, err := q.pastDamage(ctx, in)
		if err != nil {
			return err
		}
		if ok {
			fault = q.update(ctx, nil, func(tx *ledger) error { in.setLowerBound(tx, past); return nil })
		}
	}
	return fault
}

// pastDamage returns the first tail from which on the store can read an index.
// It reports false if the store can read all of it, or if the damaged block goes
// on behind it, so that no bound is past the damage.
func (q *Queue) pastDamage(ctx context.Context, in index) (tail string, ok bool, err error) {
	bound, readable, err := q.readable(ctx, in, "")
	if err != nil || readable {
		return "", false, err
	}
	if _, readable, err = q.readable(ctx, in, "\xff"); err != nil || !readable {
		return "", false, err
	}
	// A tail begins with a number. This is a binary search for the last
	// number from which on the entries cannot be read.
	at := record.ReadFixed((bound + strings.Repeat("\x00", 8))[:8])
	for step := uint64(1) << 62; step > 0; step >>= 1 {
		if _, readable, err = q.readable(ctx, in, record.Fixed(at+step)); err != nil {
			return "", false, err
		}
		if !readable {
			at += step
		}
	}
	return record.Fixed(at + 1), true, nil
}

// readable reports whether the store can read the first entry from a tail on,
// or from the index's lower bound if that is higher. It also returns the bound.
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

// tend handles a due row, for up to room tasks, and returns how many it
// handled: it ends delays, forgets finished tasks, and removes queues of
// dropped runs. If there is more, the row is due again.
func (q *Queue) tend(tx *ledger, row engine.Row, room int) (n int, err error) {
	switch {
	case strings.HasPrefix(row.Key, accountPrefix):
		return q.tendLine(tx, line(row.Key), room), nil
	case row.Key == replanKey:
		return q.tendPlans(tx, row, room), nil
	case strings.HasPrefix(row.Key, dropPrefix):
		return q.tendDropped(tx, row, room), nil
	case q.core.Tend(tx, row):
		return 1, nil
	}
	return 0, fmt.Errorf("queue: row %q is due and nobody's", row.Key)
}

// tendLine ends delays and forgets finished tasks, up to room of them, and plans
// when the queue is due next.
func (q *Queue) tendLine(tx *ledger, l line, room int) (n int) {
	a := tx.accountOf(l)
	a.due, a.planned = time.Time{}, true
	for _, state := range []State{Delayed, Completed, Failed, Dead, Cancelled, corruptState} {
		if *a.stats.of(state, 0) == 0 {
			continue
		}
		some := false
		for _, in := range indexesOfState(l, state) {
			handled, next := q.tendIndex(tx, in, room-n)
			if n += handled; !next.IsZero() {
				a.wanted(tx, next, in.byWall)
			}
			some = some || handled > 0 || !next.IsZero()
		}
		if !some {
			a.none(state, 0)
		}
	}
	return n + 1
}

// tendIndex is tendLine for one index by time. It returns how many tasks it handled, and
// when the next one is due, if there is one. Up to dueStep entries are read before any of
// them is moved.
func (q *Queue) tendIndex(tx *ledger, in index, room int) (n int, next time.Time) {
	for more := true; more; {
		var due []engine.Row
		due, next = in.dueNow(tx, min(room-n, dueStep))
		for _, row := range due {
			q.tendEntry(tx, in, row)
		}
		n += len(due)
		more = len(due) == dueStep && n < room && !tx.Spent()
	}
	return n, next
}

// tendEntry ends the delay of an entry's task, or forgets the task if it is
// finished.
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

// dueNow returns up to most due entries of an index by time, and when the next
// is due, if there is one. It raises the lower bound to the first entry that it
// does not return.
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
		if !at.Before(now) || len(due) >= most { // a row is due only after its instant
			next = at
			break
		}
		if due = append(due, row); tx.careful {
			next = at // there may be more
		}
	}
	if tail = min(tail, atTime(now, uuid.Nil)); tail > in.lowerBound(tx) { // an entry added later lowers the bound again
		in.setLowerBound(tx, tail)
	}
	return due, next
}

// replan plans every queue again. Rows are due by the running clock, so this is
// necessary after a step of the wall clock and after a restart.
func replan(tx engine.Tx) { tx.Touch(engine.Row{Key: replanKey, Due: tx.Now().Add(-1)}) }

// tendPlans plans the queues from the one that row names on, for up to room
// tasks.
func (q *Queue) tendPlans(tx *ledger, row engine.Row, room int) (n int) {
	for queue := range tx.ScanFrom(accountPrefix, row.Value) {
		if n >= room || n > 0 && tx.Spent() {
			tx.Touch(engine.Row{Key: row.Key, Value: queue.Key, Due: row.Due})
			return n
		}
		n += q.tendLine(tx, line(queue.Key), room-n)
	}
	tx.Delete(row.Key)
	return n + 1
}

// Drop removes all queues of a run, in the transaction that removes the run and
// in later ones. No call can name their tasks any more, so they only take up
// space on disk. The sessions of the run have ended, or will.
func (q *Queue) Drop(tx engine.Tx, run uuid.UUID) {
	dropPauses(tx, run)
	for range tx.Scan(string(lineOf(run, ""))) {
		tx.Put(engine.Row{Key: dropKey(run), Due: tx.Now()})
		return
	}
}

// tendDropped removes up to room tasks of a dropped run. Tasks in progress are
// removed after their claims have ended.
func (q *Queue) tendDropped(tx *ledger, row engine.Row, room int) (n int) {
	claims := false
	for queue := range tx.Scan(accountPrefix + row.Key[len(dropPrefix):]) {
		if n >= room || n > 0 && tx.Spent() {
			return n // still due
		}
		l := line(queue.Key)
		some, done := q.dropLine(tx, l, room-n)
		if n += some + 1; !done {
			return n
		}
		claims = claims || tx.accountOf(l).stats.InProgress > 0
	}
	if claims {
		tx.Touch(engine.Row{Key: row.Key, Due: tx.Now().Add(time.Second)})
	} else {
		tx.Delete(row.Key)
	}
	return n + 1
}

// dropLine removes up to room tasks of a queue, and reports whether no more is
// left but tasks in progress.
func (q *Queue) dropLine(tx *ledger, l line, room int) (n int, done bool) {
	a := tx.accountOf(l)
	a.moved = true
	for _, in := range indexesOf(l) {
		if in.state == Ready && a.stats.Ready[in.priority] == 0 {
			continue
		}
		for row := range in.entries(tx) {
			if n >= room || n%dueStep == dueStep-1 && tx.Spent() {
				return n, false
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
	if a.stats.InProgress == 0 { // corrupt tasks may have left counts behind
		a.stats, a.bytes = Stats{Queue: a.stats.Queue}, 0
	}
	return n, true
}

// Recover prepares the queues of a state that was just opened. It reads the
// records that are not cold. If one cannot be read, the error is an
// [engine.ErrCorrupt] with its key. Check reads the others.
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

// checkRows reads all records that are not cold and survive a restart.
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
