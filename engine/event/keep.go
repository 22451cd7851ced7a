package event

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Retention bounds what is kept of the events of each run.
type Retention struct {
	Age   time.Duration // by the wall clock
	Count int           // and about as many as one block of numbers more
}

// A Keeper forgets events that have been kept for long enough, in steps. It is used
// by one goroutine.
type Keeper struct {
	Retention
	Exists func(tx engine.Tx, run uuid.UUID) bool // all events of a run that does not are forgotten

	tallies map[uuid.UUID]*tally
}

// A tally is how many events of a run are kept, of those up to a revision.
type tally struct {
	last uint64
	n    int
}

// step is how many events one transaction forgets.
const step = 256

// MarkKey is the key of a row that changes once in about a thousand numbers: when
// a Keeper is wanted.
const MarkKey = markKey

// Keep forgets what is to be forgotten now, run by run.
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

// recorded are the runs of which there are rows here.
func recorded(ctx context.Context, eng engine.Engine) (runs map[uuid.UUID]bool, err error) {
	return runs, eng.Snapshot(ctx, func(tx engine.Tx) error {
		runs = make(map[uuid.UUID]bool)
		for row := range tx.Scan(compactedPrefix) {
			runs[runOf(row, compactedPrefix)] = true
		}
		for from, more := prefix, true; more && ctx.Err() == nil; {
			more = false
			for row := range tx.ScanFrom(prefix, from) {
				run := runOf(row, prefix)
				runs[run], from, more = true, keyOf(run, math.MaxUint64), true
				break
			}
		}
		return ctx.Err()
	})
}

// forget forgets some events of a run. It reports true if that may not be all.
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
			var e Event
			old := !e.read(row) || tx.Wall().Sub(e.At) >= k.Age
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
