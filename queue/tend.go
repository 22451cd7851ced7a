package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// tendBatch bounds how many rows one transaction sees to, and how many tasks one
// of them, so that what is due at once is spread and nobody waits behind it all.
const tendBatch = 256

// TendDue does, in one transaction, some of what is due: of the queues, and of the
// leases, since the end of a claim is a matter of both. A due row of another
// package is an error.
func (q *Queue) TendDue(ctx context.Context) (err error) {
	defer caught(&err)
	return q.eng.Update(ctx, func(tx engine.Tx) error {
		book := &ledger{Tx: tx, ahead: readRecords(tx, q.claimsOf(tx.Due(), tendBatch))}
		n := 0
		for row := range tx.Due() {
			if !q.core.Tend(book, row) && !q.tend(book, row) {
				return fmt.Errorf("queue: row %q is due and nobody's", row.Key)
			}
			if n++; n == tendBatch {
				break
			}
		}
		book.close()
		return nil
	})
}

// tend does what a due row of this package wants: delays end, finished tasks
// and old requests are forgotten, dropped queues taken apart. It reports false
// for a row of another package.
func (q *Queue) tend(tx *ledger, row engine.Row) bool {
	switch {
	case strings.HasPrefix(row.Key, statsPrefix):
		q.tendLine(tx, line(row.Key))
	case strings.HasPrefix(row.Key, claimPrefix):
		q.tendRequest(tx, row)
	case strings.HasPrefix(row.Key, dropPrefix):
		q.tendDropped(tx, row)
	default:
		return false
	}
	return true
}

// tendLine ends delays, and forgets finished tasks. What is due in an index is
// read before any of it is moved, and is passed at once.
func (q *Queue) tendLine(tx *ledger, l line) {
	now := tx.Now()
	var next time.Time // the earliest that is left
	room := tendBatch
	for _, index := range []struct {
		index
		do func(*Task)
	}{
		{delayedIndex(l), func(t *Task) { leave(tx, t); q.place(tx, t, now) }},
		{finishedIndex(l), func(t *Task) { q.forget(tx, t) }},
	} {
		due, left := index.dueBefore(tx, now, room)
		if !left.IsZero() && (next.IsZero() || left.Before(next)) {
			next = left
		}
		room -= len(due)
		for _, row := range due {
			t := index.taskAt(tx, row)
			index.do(&t)
		}
	}
	a := tx.accountOf(l)
	a.due, a.moved = next, true
}

// dueBefore gives up to most entries of an index by time that are due before now,
// and when the next is due, if there is one. It passes those it gives.
func (in index) dueBefore(tx *ledger, now time.Time, most int) (due []engine.Row, next time.Time) {
	tail := ""
	for row := range in.entries(tx) {
		tail = in.tail(row)
		if at := timeOf(row); !at.Before(now) || len(due) == most { // a row is due after its instant
			next = at
			break
		}
		due = append(due, row)
	}
	if tail != "" { // what comes to stand there is due later than now
		in.passed(tx, min(tail, atTime(now, uuid.Nil)))
	}
	return due, next
}

// Drop removes all queues of a run, in the transaction that removes the run
// and in those that follow: nobody can name a task of it any more, so what is
// left of them is only room on the disk.
func (q *Queue) Drop(tx Tx, run uuid.UUID) {
	entered(tx, func(tx *ledger) {
		claims := false
		for row := range tx.Scan(string(lineOf(run, ""))) {
			l := line(row.Key)
			tx.Put(engine.Row{Key: dropKey(l), Due: tx.Now()})
			claims = claims || tx.accountOf(l).stats.InProgress > 0
		}
		if !claims {
			return // as in every run that has ended, for then its sessions have
		}
		for _, standing := range q.leases.List(tx, "") {
			if id, err := uuid.Parse(standing.Key); err == nil {
				_, _ = q.cancel(tx, run, id) // not found: of another run
			}
		}
	})
}

func (q *Queue) tendDropped(tx *ledger, row engine.Row) {
	l := lineNamed(row.Key[len(dropPrefix):])
	n := 0
	for _, in := range indexesOf(l) {
		for row := range in.entries(tx) {
			in.passed(tx, in.tail(row))
			if n == tendBatch {
				break
			}
			n++
			t := in.taskAt(tx, row)
			q.forget(tx, &t)
		}
	}
	if n == 0 { // else it is still due
		tx.Delete(row.Key)
	}
}

// Recover readies the queues of a state just opened. The records that are not
// cold are read, so that one that cannot be is an [engine.ErrCorrupt] with its
// key. Check reads the others.
func (q *Queue) Recover(ctx context.Context) error {
	return q.view(ctx, func(tx *ledger) error {
		var faults []error
		q.checkRows(tx, func(err error) { faults = append(faults, err) })
		return errors.Join(faults...)
	})
}

// checkRows reads every record that is not cold.
func (q *Queue) checkRows(tx *ledger, fault func(error)) {
	each := func(prefix string, read func(engine.Row)) {
		for row := range tx.Scan(prefix) {
			func() {
				var err error
				defer func() {
					if err != nil {
						fault(err)
					}
				}()
				defer caught(&err)
				read(row)
			}()
		}
	}
	each(placeKey, func(row engine.Row) {
		if row.Key == placeKey {
			readPlaces(tx)
		}
	})
	each(statsPrefix, func(row engine.Row) {
		mustBeLine(row, statsPrefix)
		new(account).read(tx, line(row.Key))
	})
	each(dropPrefix, func(row engine.Row) { mustBeLine(row, dropPrefix) })
	each(claimPrefix, func(row engine.Row) { decodeJSON[request](row) })
}

func mustBeLine(row engine.Row, prefix string) {
	if name := row.Key[len(prefix):]; len(name) <= 16 || !isName(name[16:]) {
		panic(corrupt(row.Key, errors.New("not the name of a queue")))
	}
}
