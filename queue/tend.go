package queue

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// tendBatch bounds how many tasks one due row sees to in one transaction.
const tendBatch = 100

// Tend does what a due row of this package wants: delays end, finished tasks
// and old requests are forgotten, dropped queues taken apart. It reports false
// for a row of another package.
func (q *Queue) Tend(tx Tx, row engine.Row) bool {
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

func (q *Queue) tendLine(tx Tx, l line) {
	now, n := tx.Now(), 0
	var next time.Time // the earliest that is left
	for _, index := range []struct {
		index
		do func(Task)
	}{
		{delayedIndex(l), func(t Task) { q.place(tx, &t, t, now) }},
		{finishedIndex(l), func(t Task) { q.forget(tx, t) }},
	} {
		for row := range index.entries(tx) {
			index.passed(tx, index.tail(row))
			at := timeOf(row)
			if !at.Before(now) || n == tendBatch { // a row is due after its instant
				if next.IsZero() || at.Before(next) {
					next = at
				}
				break
			}
			n++
			index.do(index.taskAt(tx, row))
		}
	}
	s, _ := getStats(tx, l)
	putStats(tx, l, s, next)
}

// Drop removes all queues of a run, in the transaction that removes the run
// and in those that follow: nobody can name a task of it any more, so what is
// left of them is only room on the disk.
func (q *Queue) Drop(tx Tx, run uuid.UUID) {
	claims := false
	for row := range tx.Scan(string(lineOf(run, ""))) {
		l := line(row.Key)
		tx.Put(engine.Row{Key: dropKey(l), Due: tx.Now()})
		s, _ := getStats(tx, l)
		claims = claims || s.InProgress > 0
	}
	if !claims {
		return // as in every run that has ended, for then its sessions have
	}
	for _, standing := range q.leases.List(tx, "") {
		if id, err := uuid.Parse(standing.Key); err == nil {
			_, _ = q.cancel(tx, run, id) // not found: of another run
		}
	}
}

func (q *Queue) tendDropped(tx Tx, row engine.Row) {
	l := lineNamed(row.Key[len(dropPrefix):])
	n := 0
	for _, in := range indexesOf(l) {
		for row := range in.entries(tx) {
			in.passed(tx, in.tail(row))
			if n == tendBatch {
				break
			}
			n++
			q.forget(tx, in.taskAt(tx, row))
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
	return q.view(ctx, func(tx Tx) error {
		var faults []error
		q.checkRows(tx, func(err error) { faults = append(faults, err) })
		return errors.Join(faults...)
	})
}

// checkRows reads every record that is not cold.
func (q *Queue) checkRows(tx Tx, fault func(error)) {
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
			places(tx)
		}
	})
	each(statsPrefix, func(row engine.Row) {
		mustBeLine(row, statsPrefix)
		getStats(tx, line(row.Key))
	})
	each(dropPrefix, func(row engine.Row) { mustBeLine(row, dropPrefix) })
	each(claimPrefix, func(row engine.Row) { decodeJSON[request](row) })
	each(cursorPrefix+readyPrefix, func(row engine.Row) {
		if len(row.Value) != 8 {
			panic(corrupt(row.Key, errors.New("not a place")))
		}
	})
}

func mustBeLine(row engine.Row, prefix string) {
	if name := row.Key[len(prefix):]; len(name) <= 16 || !isName(name[16:]) {
		panic(corrupt(row.Key, errors.New("not the name of a queue")))
	}
}
