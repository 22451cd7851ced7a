package pebble

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A commit is the durable writes of one Update, or of several that ran while
// the commit before was being appended to the log. The one that began it
// appends it, and waits for its sync; the others wait for that one.
type commit struct {
	rows    []stored     // in the order in which they were written
	again   map[*row]int // where those are that had been stored before
	cold    coldSet      // it is in the overlay for as long as it has any
	size    int          // about, of the batch
	done    sync.WaitGroup
	err     error // set before done
	applied atomic.Bool
}

// A stored is what a commit has of a row: the row itself may change meanwhile.
type stored struct {
	key, value string
	gone       bool
	single     bool // and had one record
	owner      uuid.UUID
	due        int64
}

// fullCommit is the size of a commit that takes no more Updates.
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
		was, once := w.r.stored(), w.r.once()
		w.r.settle(w.kind == put)
		if w.kind != nothing {
			e.openLocked(end).record(w, was, once)
		}
	}
	if t.cold.n == 0 {
		return
	}
	c := e.openLocked(end)
	for w := range t.cold.all {
		c.size += entrySize + len(w.key) + len(w.value)
		e.recent.set(w.key, w.value, w.gone)
	}
	e.overlay.add(c, &t.cold)
}

const entrySize = 16 // about, of what a batch has of a row beside key and value

// record adds a write. One row, such as a count, may be changed by every
// transaction of a commit: it is stored once, as the last has left it.
func (c *commit) record(w *write, stands, once bool) {
	s := stored{w.r.key(), w.value, w.kind == deletion, once, w.owner, w.due}
	if stands && w.kind == put {
		if at, ok := c.again[w.r]; ok {
			c.rows[at] = s
			return
		}
		if c.again == nil {
			c.again = make(map[*row]int)
		}
		c.again[w.r] = len(c.rows)
	}
	c.rows = append(c.rows, s)
	c.size += entrySize + len(s.key) + len(s.value)
}

func (e *Engine) openLocked(end *ending) *commit {
	if e.open == nil {
		if e.open = e.spare; e.open == nil {
			e.open = newCommit()
		}
		e.last, e.spare = e.open, nil
		end.mine = true
	}
	return e.open
}

func newCommit() *commit {
	c := new(commit)
	c.done.Add(1)
	return c
}

// encode gives the batch of a commit that is closed.
func (e *Engine) encode(c *commit) *pebble.Batch {
	b := e.db.NewBatch()
	for i := range c.rows {
		c.rows[i].encode(b)
	}
	for w := range c.cold.all {
		w.encode(b)
	}
	if e.usedRows = reuse(c.rows); len(c.again) < 1<<8 {
		clear(c.again)
		e.usedAgain = c.again
	}
	c.rows, c.again = nil, nil // it may be referred to as the last for long
	return b
}

func (s *stored) encode(b *pebble.Batch) {
	var op *pebble.DeferredBatchOp
	switch {
	case s.gone && s.single:
		op = b.SingleDeleteDeferred(1 + len(s.key))
	case s.gone:
		op = b.DeleteDeferred(1 + len(s.key))
	default:
		op = b.SetDeferred(1+len(s.key), recordSize(s.value, s.owner, s.due))
		encodeRecord(op.Value, s.value, s.owner, s.due)
	}
	op.Key[0] = rowSpace
	copy(op.Key[1:], s.key)
	_ = op.Finish() // fails for an indexed batch only
}

// settle does what is left of a transaction outside the lock: it waits until
// what the transaction has seen or done is durable, then tells the watches.
func (e *Engine) settle(end *ending) error {
	c := end.seen
	if end.mine {
		c.err = e.carry(c)
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
	spare := newCommit()
	e.appending.Lock()
	runtime.Gosched() // who can go on now joins, and shares what a commit costs
	spare.rows, spare.again, e.usedRows, e.usedAgain = e.usedRows, e.usedAgain, nil, nil
	e.mu.Lock()
	e.open, e.spare = nil, spare
	e.mu.Unlock()
	// Encoded without the lock: transactions go on, and make up the next.
	batch := e.encode(c)
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
