package pebble

import (
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasehold/leasehold/engine"
)

// A commit is a batch that has been appended to the log.
type commit struct {
	batch *pebble.Batch
	done  sync.WaitGroup
	err   error // set before done
}

// wait returns when c, and so all before it, is durable or has failed.
func (c *commit) wait() error {
	if c == nil {
		return nil
	}
	c.done.Wait()
	return c.err
}

// appendLocked appends the durable writes of t to the log. It does not wait
// for them. After an error memory is ahead of the store for good.
func (e *Engine) appendLocked(t *tx, end *ending) error {
	batch := e.batch(t.writes)
	for i := range t.writes {
		t.writes[i].r.settle(t.writes[i].kind == put)
	}
	if batch == nil {
		return nil
	}
	if err := e.db.ApplyNoSyncWait(batch, pebble.Sync); err != nil {
		e.fail(err)
	}
	// Pebble may have met its end in there, by Fatalf, and returned: then
	// nobody will ever tell this batch that it is synced.
	if err := e.failed(); err != nil {
		return err
	}
	c := &commit{batch: batch}
	c.done.Add(1)
	e.last, end.mine = c, true
	return nil
}

// batch encodes writes, or gives nil when there is nothing to tell the store.
func (e *Engine) batch(writes []write) *pebble.Batch {
	var b *pebble.Batch
	for i := range writes {
		w := &writes[i]
		if w.kind == nothing {
			continue
		}
		if b == nil {
			b = e.db.NewBatch()
		}
		var op *pebble.DeferredBatchOp
		if w.kind == put {
			op = b.SetDeferred(1+len(w.r.key), recordSize(w.value, w.owner, w.due))
			encodeRecord(op.Value, w.value, w.owner, w.due)
		} else {
			op = b.DeleteDeferred(1 + len(w.r.key))
		}
		op.Key[0] = rowSpace
		copy(op.Key[1:], w.r.key)
		_ = op.Finish() // fails for an indexed batch only
	}
	return b
}

// settle does what is left of a transaction outside the lock: it waits until
// what the transaction has seen or done is durable, then tells the watches.
func (e *Engine) settle(end *ending) error {
	c := end.seen
	if end.mine {
		// The only Done of c is here, so c.wait is this wait. Commits
		// before c are durable when c is, though those who wait for them
		// may not have been told: the log is one sequence, and a log file
		// is synced to its end before the next is begun.
		//
		// A disk that fails makes the engine fail before Pebble hears of
		// anything (see stateFS): if there is no failure now, everything
		// up to this sync has reached the disk.
		if err := c.batch.SyncWait(); err != nil {
			e.fail(err)
		}
		c.err = e.failed()
		if c.err == nil {
			_ = c.batch.Close()
		}
		c.batch = nil
		c.done.Done()
	}
	if err := c.wait(); err != nil {
		return err
	}
	e.hub.Notify(end.changed...)
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
