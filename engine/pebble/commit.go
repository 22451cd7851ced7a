package pebble

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasehold/leasehold/engine"
)

// A commit is a batch with the durable writes of one Update, or of several that
// ran while the commit before was being appended to the log. The one that
// began it appends it, and waits for its sync; the others wait for that one.
type commit struct {
	batch   *pebble.Batch
	done    sync.WaitGroup
	err     error // set before done
	applied atomic.Bool
	cold    []*coldWrite // what the overlay has of it
}

// fullCommit is the size of a batch that takes no more Updates.
const fullCommit = 1 << 20

// wait returns when c, and so all before it, is durable or has failed.
func (c *commit) wait() error {
	if c == nil {
		return nil
	}
	c.done.Wait()
	return c.err
}

// recordLocked adds the durable writes of t to the commit that is open, or to a
// new one.
func (e *Engine) recordLocked(t *tx, end *ending) {
	for i := range t.writes {
		w := &t.writes[i]
		w.r.settle(w.kind == put)
		if w.kind != nothing {
			w.encode(e.openLocked(end).batch)
		}
	}
	for _, w := range t.cold {
		c := e.openLocked(end)
		w.encode(c.batch)
		e.overlay.commit(w, c)
	}
}

func (e *Engine) openLocked(end *ending) *commit {
	if e.open == nil {
		if e.open = e.spare; e.open == nil {
			e.open = e.newCommit()
		}
		e.last, e.spare = e.open, nil
		end.mine = true
	}
	return e.open
}

func (e *Engine) newCommit() *commit {
	c := &commit{batch: e.db.NewBatch()}
	c.done.Add(1)
	return c
}

func (w *write) encode(b *pebble.Batch) {
	var op *pebble.DeferredBatchOp
	if w.kind == put {
		op = b.SetDeferred(1+w.r.keyLen(), recordSize(w.value, w.owner, w.due))
		encodeRecord(op.Value, w.value, w.owner, w.due)
	} else {
		op = b.DeleteDeferred(1 + w.r.keyLen())
	}
	op.Key[0] = rowSpace
	copy(op.Key[1:], w.r.key())
	_ = op.Finish() // fails for an indexed batch only
}

// settle does what is left of a transaction outside the lock: it waits until
// what the transaction has seen or done is durable, then tells the watches.
func (e *Engine) settle(end *ending) error {
	c := end.seen
	if end.mine {
		c.err = e.carry(c)
		c.batch = nil
		c.done.Done() // the only one: to wait for c is to wait for its sync
	}
	if err := c.wait(); err != nil {
		return err
	}
	e.hub.Notify(end.changed...)
	return nil
}

// carry closes c, which is the open commit, appends it to the log and waits
// until it is durable.
//
// Commits reach the log in the order of their transactions: the next is begun
// when this one is closed, by which time this one holds appending, and has to
// get hold of that itself. So when a commit is durable, all before it are,
// though those who wait for them may not have been told: the log is one
// sequence, and a log file is synced to its end before the next is begun.
func (e *Engine) carry(c *commit) error {
	batch := c.batch
	spare := e.newCommit()
	e.appending.Lock()
	e.mu.Lock()
	e.open, e.spare = nil, spare
	e.mu.Unlock()
	e.carried.Store(c) // before anybody can read from the store what is in it
	err := e.db.ApplyNoSyncWait(batch, pebble.Sync)
	if err != nil {
		e.fail(err)
	} else {
		c.applied.Store(true)
	}
	e.appending.Unlock()
	// Pebble may have met its end in there, by Fatalf, and returned: then
	// nobody will ever tell this batch that it is synced.
	if err := e.failed(); err != nil {
		return err
	}
	// A disk that fails makes the engine fail before Pebble hears of it, see
	// stateFS: if there is no failure after the sync, everything up to it
	// has reached the disk.
	if err := batch.SyncWait(); err != nil {
		e.fail(err)
	}
	if err := e.failed(); err != nil {
		return err
	}
	_ = batch.Close()
	return nil
}

// fail makes err the engine's failure, if it is the first, and wakes everybody
// who waits for something that will not come.
func (e *Engine) fail(err error) {
	err = fmt.Errorf("%w: %w", engine.ErrFailed, err)
	if !e.failure.CompareAndSwap(nil, &err) {
		return
	}
	e.logf("%v", err)
	e.hub.NotifyAll()
	e.alarm.ring()
}

func (e *Engine) failed() error {
	if err := e.failure.Load(); err != nil {
		return *err
	}
	return nil
}
