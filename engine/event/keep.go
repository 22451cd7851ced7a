package event

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Retention limits how many events of each run are kept.
type Retention struct {
	Age   time.Duration // by the wall clock
	Count int           // exceeded by at most about one block of numbers
}

// A Keeper deletes events whose retention is over, in steps. It must be used by
// one goroutine only.
type Keeper struct {
	Retention
	Exists func(tx engine.Tx, run uuid.UUID) bool // if a run does not exist, all its events are deleted

	tallies map[uuid.UUID]*tally
}

// A tally is the number of stored events of a run, up to a revision.
type tally struct {
	last uint64
	n    int
}

// step is how many events one transaction deletes.
const step = 256

// Keep deletes all events whose retention is over, run by run.
func (k *Keeper) Keep(ctx context.Context, eng engine.Engine) error {
	runs, err := recorded(ctx, eng)
	if err != nil {
		return err
	}
	was := k.tallies
	k.tallies = make(map[uuid.UUID]*tally, len(runs))
	for run := range runs {
		t := was[run]
		if t == nil {
			t = &tally{}
		}
		k.tallies[run] = t
		for more := true; more; {
			if more, err = k.forget(ctx, eng, run, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// recorded returns the runs that have rows of this package.
func recorded(ctx context.Context, eng engine.Engine) (runs map[uuid.UUID]bool, err error) {
	return runs, eng.Snapshot(ctx, func(tx engine.Tx) error {
		runs = make(map[uuid.UUID]bool)
		for row := range tx.Scan(compactedPrefix) {
			runs[runOf(row, compactedPrefix)] = true
		}
		for from, more := Prefix, true; more && ctx.Err() == nil; {
			more = false
			for row := range tx.ScanFrom(Prefix, from) {
				run := runOf(row, Prefix)
				runs[run], from, more = true, keyOf(run, math.MaxUint64), true
				break
			}
		}
		return ctx.Err()
	})
}

// forget deletes some events of a run. It returns true if there may be more.
func (k *Keeper) forget(ctx context.Context, eng engine.Engine, run uuid.UUID, t *tally) (more bool, err error) {
	var doomed []string
	var through uint64
	exists := true
	err = eng.Snapshot(ctx, func(tx engine.Tx) error {
		exists = k.Exists(tx, run)
		for row := range rows(tx, run, max(t.last, Compacted(tx, run))) {
			if t.last = revisionOf(row); ctx.Err() != nil {
				return ctx.Err()
			}
			t.n++
		}
		for row := range rows(tx, run, Compacted(tx, run)) {
			e, ok := Parse(row)
			old := !ok || tx.Wall().Sub(e.At) >= k.Age
			if len(doomed) == step || exists && !old && t.n-len(doomed) <= k.Count {
				break
			}
			doomed, through = append(doomed, row.Key), revisionOf(row)
		}
		return nil
	})
	gone := !exists && len(doomed) < step
	if err != nil || len(doomed) == 0 && !gone {
		return false, err
	}
	err = eng.Update(ctx, func(tx engine.Tx) error {
		for _, key := range doomed {
			tx.Delete(key)
		}
		if gone {
			tx.Delete(compactedKey(run))
		} else {
			tx.Put(engine.Row{Key: compactedKey(run), Value: record.Fixed(through)})
		}
		return nil
	})
	t.n -= len(doomed)
	return len(doomed) == step, err
}
