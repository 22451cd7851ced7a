package queue

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// AccountPrefix is of the rows that tell, as they change, how many tasks a queue has,
// for an [engine.Observer]. A queue without tasks has none.
const AccountPrefix = accountPrefix

// StatsOf reads the row of a queue. The zero Row has no tasks.
func StatsOf(row engine.Row) (s Stats, run uuid.UUID, ok bool) {
	if len(row.Key) < len(accountPrefix)+16 {
		return Stats{}, uuid.Nil, false
	}
	a := account{line: line(row.Key)}
	if row.Value != "" && !a.decode(row.Value) {
		return Stats{}, uuid.Nil, false
	}
	a.stats.Queue = a.line.queue()
	return a.stats, a.line.run(), true
}

// A Named is a queue of a run.
type Named struct {
	Run   uuid.UUID
	Queue string
}

// Oldest gives, of those queues that have ready tasks, when the first in line of any
// priority was enqueued. It costs a few reads for each.
func Oldest(ctx context.Context, eng engine.Engine, queues []Named) (since map[Named]time.Time, now time.Time, err error) {
	since = make(map[Named]time.Time, len(queues))
	err = eng.Snapshot(ctx, func(tx engine.Tx) error {
		now = tx.Wall()
		for _, of := range queues {
			book := &ledger{Tx: tx}
			stats := &book.accountOf(lineOf(of.Run, of.Queue)).stats
			for priority, n := range stats.Ready {
				if n == 0 {
					continue
				}
				in := readyIndex(lineOf(of.Run, of.Queue), priority)
				for row := range tx.ScanFrom(in.prefix, in.prefix+in.lowerBound(book)) {
					t := Task{}
					if !in.taskAt(book, row, &t) {
						continue
					}
					if was, ok := since[of]; !ok || t.EnqueuedAt.Before(was) {
						since[of] = t.EnqueuedAt
					}
					break
				}
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	return since, now, err
}
