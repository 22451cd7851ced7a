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
	"github.com/leasehold/leasehold/engine/record"
)

const (
	// dueBatch bounds how many rows and tasks one transaction sees to, so that
	// nobody waits behind all that is due at once.
	dueBatch = 256

	// wallCheck is how often the wall clock is looked at. The engine tells of a
	// step at once, but not of slow corrections.
	wallCheck = 10 * time.Minute

	// putOff is when something due is looked at again that needs a record which
	// the store cannot read.
	putOff = time.Hour
)

// TendDue does, in one transaction, some of what is due: of the queues, and of the
// leases, since the end of a claim is a matter of both. A due row of another
// package is an error.
func (q *Queue) TendDue(ctx context.Context) error {
	err := q.change(ctx, func(tx *ledger) error {
		room := dueBatch
		for row := range tx.Due() {
			n, err := q.tend(tx, row, room)
			if room -= n; err != nil || room <= 0 {
				return err
			}
		}
		if at, _, ok := firstAlarm(tx); ok && at.Before(tx.Wall()) { // the wall clock was stepped
			q.tendAlarms(tx, room)
		}
		return nil
	})
	if errors.Is(err, engine.ErrCorrupt) {
		return q.tendEach(ctx)
	}
	return err
}

// change is a transaction of nobody's call.
func (q *Queue) change(ctx context.Context, rule func(*ledger) error) error {
	return q.eng.Update(ctx, func(tx engine.Tx) error {
		book := &ledger{Tx: tx, q: q}
		if err := rule(book); err != nil {
			return err
		}
		book.close()
		return nil
	})
}

// tendEach sees to the rows that are due one by one, because one of them needs a
// record that the store cannot read. That one is put off.
func (q *Queue) tendEach(ctx context.Context) error {
	var due []engine.Row
	err := q.eng.View(ctx, func(tx engine.Tx) error {
		for row := range tx.Due() {
			if due = append(due, row); len(due) == dueBatch {
				break
			}
		}
		return nil
	})
	for _, row := range due {
		if err != nil {
			return err
		}
		err = q.change(ctx, func(tx *ledger) error {
			now, ok := tx.Get(row.Key)
			if !ok || !now.Due.Equal(row.Due) {
				return nil
			}
			_, err := q.tend(tx, now, 1)
			return err
		})
		if !errors.Is(err, engine.ErrCorrupt) {
			continue
		}
		err = q.change(ctx, func(tx *ledger) error {
			if row.Key == alarmKey {
				q.putOffAlarm(tx)
			} else if now, ok := tx.Get(row.Key); ok {
				now.Due = tx.Now().Add(putOff)
				tx.Touch(now)
			}
			return nil
		})
	}
	return err
}

// tend does what a due row wants, for up to room tasks, and says how many it saw
// to: delays end, finished tasks are forgotten, dropped queues are taken apart.
func (q *Queue) tend(tx *ledger, row engine.Row, room int) (n int, err error) {
	switch {
	case strings.HasPrefix(row.Key, accountPrefix):
		return q.tendLine(tx, line(row.Key), room), nil
	case row.Key == alarmKey:
		return q.tendAlarms(tx, room), nil
	case strings.HasPrefix(row.Key, dropPrefix):
		return q.tendDropped(tx, row, room), nil
	case call.Tend(tx, row), q.core.Tend(tx, row):
		return 1, nil
	}
	return 0, fmt.Errorf("queue: row %q is due and nobody's", row.Key)
}

// tendLine ends delays, and forgets finished tasks, up to room of them. What is
// due in an index is read before any of it is moved.
func (q *Queue) tendLine(tx *ledger, l line, room int) (n int) {
	a := tx.accountOf(l)
	a.due, a.alarm, a.moved = time.Time{}, time.Time{}, true
	move := func(in index, row engine.Row) {
		if t, ok := in.taskAt(tx, row); ok && t.State == Delayed {
			removeFromIndex(tx, &t)
			q.schedule(tx, &t, 0)
		} else {
			q.setAside(tx, in, row)
		}
	}
	drop := func(in index, row engine.Row) {
		if t, ok := in.taskAt(tx, row); ok && t.State.Finished() {
			forget(tx, &t)
		} else {
			forgetUnread(tx, in, row)
		}
	}
	for _, step := range []struct {
		in     index
		byWall bool
		some   bool
		do     func(index, engine.Row)
	}{
		{delayedIndex(l), false, a.stats.Delayed > 0, move},
		{timedIndex(l), true, a.stats.Delayed > 0, move},
		{finishedIndex(l), true, true, drop},
		{corruptIndex(l), true, a.stats.Corrupt > 0, drop},
	} {
		if !step.some {
			continue
		}
		now := tx.Now()
		if step.byWall {
			now = tx.Wall()
		}
		due, next := step.in.dueBefore(tx, now, room-n)
		for _, row := range due {
			step.do(step.in, row)
		}
		if n += len(due); !next.IsZero() {
			a.wanted(next, step.byWall)
		}
	}
	return n + 1
}

// dueBefore gives up to most entries of an index by time that are due before now,
// and when the next is due, if there is one. It raises the lower bound over those
// it gives.
func (in index) dueBefore(tx *ledger, now time.Time, most int) (due []engine.Row, next time.Time) {
	tail := ""
	for row := range in.entries(tx) {
		at, _, ok := in.timeAndID(row)
		if !ok {
			continue // Check reports it
		}
		tail = in.tail(row)
		if !at.Before(now) || len(due) >= most { // a row is due after its instant
			next = at
			break
		}
		due = append(due, row)
	}
	if tail != "" { // an entry that is added from here on lowers it again
		in.raiseLowerBound(tx, min(tail, atTime(now, uuid.Nil)))
	}
	return due, next
}

// The wall clock may be stepped, and rows are due by the running clock. So a
// queue has its next instant of the wall clock in an alarm, a row whose key sorts
// by that instant. One row of the running clock is due when the first alarm is,
// and every few minutes: a step of the wall clock moves that row alone.

func alarmRow(l line, at time.Time) string {
	return alarmPrefix + record.Fixed(uint64(at.UnixNano())) + l.name()
}

// setAlarm moves the alarm of a queue. The zero time is none.
func setAlarm(tx *ledger, l line, was, at time.Time) {
	if !was.IsZero() {
		tx.Delete(alarmRow(l, was))
	}
	if at.IsZero() {
		return
	}
	tx.Touch(engine.Row{Key: alarmRow(l, at)})
	due := alarmDue(tx, at)
	if row, ok := tx.Get(alarmKey); !ok || due.Before(row.Due) {
		tx.Touch(engine.Row{Key: alarmKey, Due: due})
	}
}

// alarmDue is when an instant of the wall clock is to be looked at.
func alarmDue(tx engine.Tx, at time.Time) time.Time {
	return tx.Now().Add(min(max(0, at.Sub(tx.Wall())), wallCheck))
}

// firstAlarm is the earliest alarm.
func firstAlarm(tx engine.Tx) (at time.Time, l line, ok bool) {
	for row := range tx.Scan(alarmPrefix) {
		at = time.Unix(0, int64(record.ReadFixed(row.Key[len(alarmPrefix):]))).UTC()
		return at, lineNamed(row.Key[len(alarmPrefix)+8:]), true
	}
	return time.Time{}, "", false
}

// tendAlarms sees to the queues whose instant has come.
func (q *Queue) tendAlarms(tx *ledger, room int) (n int) {
	for n < room {
		at, l, ok := firstAlarm(tx)
		if !ok {
			tx.Delete(alarmKey)
			return n + 1
		}
		if !at.Before(tx.Wall()) {
			break
		}
		n += q.tendLine(tx, l, room-n)
		a := tx.accountOf(l)
		setAlarm(tx, l, at, a.alarm) // not when the ledger is closed: the loop looks for the next
		a.alarmWas = a.alarm
	}
	tx.rearm = true
	return n + 1
}

// rearm makes the one row due when the first alarm is.
func rearm(tx *ledger) {
	if at, _, ok := firstAlarm(tx); ok {
		tx.Touch(engine.Row{Key: alarmKey, Due: alarmDue(tx, at)})
	} else {
		tx.Delete(alarmKey)
	}
}

// putOffAlarm puts off the first queue, whose task cannot be read.
func (q *Queue) putOffAlarm(tx *ledger) {
	tx.rearm = true
	if _, l, ok := firstAlarm(tx); ok {
		a := tx.accountOf(l)
		a.alarm, a.moved = tx.Wall().Add(putOff), true
	}
}

// Drop removes all queues of a run, in the transaction that removes the run and
// in those that follow. Nobody can name a task of it any more, so what is left of
// them is only room on the disk. The sessions of the run have ended, or will.
func (q *Queue) Drop(tx engine.Tx, run uuid.UUID) {
	for range tx.Scan(string(lineOf(run, ""))) {
		tx.Put(engine.Row{Key: dropKey(run), Due: tx.Now()})
		return
	}
}

// tendDropped forgets up to room tasks of a dropped run. Those that are in
// progress wait for the end of their claims.
func (q *Queue) tendDropped(tx *ledger, row engine.Row, room int) (n int) {
	claims := false
	for queue := range tx.Scan(string(lineOf(runOf(row), ""))) {
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

func runOf(row engine.Row) uuid.UUID { return uuid.UUID([]byte(row.Key[len(dropPrefix):])) }

func (q *Queue) dropLine(tx *ledger, l line, room int) (n int) {
	a := tx.accountOf(l)
	for _, in := range indexesOf(l) {
		if in.ofReady() && a.stats.Ready[in.priority] == 0 {
			continue
		}
		for row := range in.entries(tx) {
			if n == room {
				return n
			}
			n++
			in.raiseLowerBound(tx, in.tail(row))
			if t, ok := in.taskAt(tx, row); ok && t.line == l {
				forget(tx, &t)
				continue
			}
			forgetUnread(tx, in, row)
			if in.ofReady() && len(row.Value) >= 16 {
				forgetRows(tx, uuid.UUID([]byte(row.Value[:16])))
			}
		}
	}
	if a.stats.InProgress == 0 { // whatever corrupt tasks have left of the counts
		a.stats, a.bytes = Stats{Queue: a.stats.Queue}, 0
	}
	a.moved = true
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
			queues[a.line.run()]++
			if a.actor != uuid.Nil {
				queues[a.actor]++
			}
			if !a.alarm.IsZero() {
				tx.Touch(engine.Row{Key: alarmRow(a.line, a.alarm)})
			}
		}
		for of, n := range queues {
			tx.Touch(engine.Row{Key: queuesKey(of), Value: record.Fixed(n)})
		}
		rearm(&ledger{Tx: tx, q: q})
		return nil
	})
}

// checkRows reads every record that is not cold and outlives a restart.
func checkRows(tx engine.Tx) error {
	var faults []error
	if _, ok := readPlaces(tx); !ok {
		faults = append(faults, corrupt(placeKey))
	}
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
