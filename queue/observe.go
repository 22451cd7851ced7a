package queue

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// AccountPrefix begins the keys of the rows that count each queue's tasks. An
// [engine.Observer] can follow them. A queue without tasks has no row.
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

// Oldest returns, for each of the queues that has ready tasks, when the oldest
// of the first tasks of all priorities was enqueued. It costs a few reads for
// each queue.
func Oldest(ctx context.Context, eng engine.Engine, queues []Named) (since map[Named]time.Time, now time.Time, err error) {
	since = make(map[Named]time.Time, len(queues))
	err = eng.Snapshot(ctx, func(tx engine.Tx) error {
		now = tx.Wall()
		for _, of := range queues {
			book := &ledger{Tx: tx}
			a := book.accountOf(lineOf(of.Run, of.Queue))
			for priority, n := range a.stats.Ready {
				if n == 0 {
					continue
				}
				in := readyIndex(a.line, priority)
				for row := range in.entries(book) {
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
