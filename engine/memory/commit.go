package memory

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// A commit is the durable writes of one Update, or of several that ran while
// the commit before was being appended to the store. The one that began it
// appends it and waits for it; the others wait for that one.
type commit struct {
	number uint64 // rises by one with each
	size   int    // about, of the batch
	writes []Write
	cold   *coldWrites // nil if there are none
	beat   bool        // write the clock, however long ago that was done

	// disk says that somebody waits who needs the commit to survive the
	// machine. It is set under Engine.mu until the commit is closed.
	disk bool

	done    sync.WaitGroup
	err     error       // set before done
	applied atomic.Bool // reads of the store find what the commit wrote
}

const (
	// fullCommit is the size of a commit that takes no more Updates.
	fullCommit = 1 << 20
	entrySize  = 16 // about, of what a batch has of a row beside key and value
)

// wait returns when c, and so each commit before it, is durable or has failed.
func (c *commit) wait() error {
	if c == nil {
		return nil
	}
	c.done.Wait()
	return c.err
}

// recordLocked adds the durable writes of a transaction to the commit that is
// open, or to a new one.
func (e *Engine) recordLocked(end *ending) {
	t := &end.tx
	for i := range t.writes {
		w := &t.writes[i]
		if t.rows[i] != nil {
			t.rows[i].dirty = 0
		}
		if w.Key == "" {
			continue
		}
		c := e.openLocked(end)
		c.writes = append(c.writes, *w)
		c.size += entrySize + len(w.Key) + len(w.value)
		c.disk = c.disk || t.disk
	}
	if len(t.cold) == 0 {
		return
	}
	c := e.openLocked(end)
	c.disk = c.disk || t.disk
	if c.cold == nil {
		c.cold = new(coldWrites)
		e.inFlight = append(e.inFlight, c)
	}
	for i := range t.cold {
		w := &t.cold[i]
		c.cold.Set(w.key, w.coldWrite)
		c.size += entrySize + len(w.key) + len(w.value)
		e.recent.set(w.key, w.coldWrite)
	}
}

// openLocked gives the commit that takes writes.
func (e *Engine) openLocked(end *ending) *commit {
	if e.open == nil {
		c := &commit{number: 1}
		if e.last != nil {
			c.number = e.last.number + 1
		}
		c.writes, e.spare = e.spare, nil
		c.done.Add(1)
		e.open, e.last = c, c
		end.mine = true
	}
	return e.open
}

// seenLocked settles what the caller of a transaction has to wait for: the last
// commit, which has all that the transaction saw and did. A caller on this
// machine waits for what that commit needs; another one needs it on disk.
func (e *Engine) seenLocked(end *ending) {
	end.seen = e.last
	if !end.local || end.tx.disk {
		end.seen = e.toDiskLocked(e.last, end)
	}
}

// toDiskLocked gives a commit that will survive the machine and is c or later. If
// c was closed without that, a new commit takes it to the disk.
func (e *Engine) toDiskLocked(c *commit, end *ending) *commit {
	switch {
	case c == nil || c.number <= e.onDisk.Load():
		return c
	case c != e.open && c.disk:
		return c
	case e.open == nil && e.last != c && e.last.disk:
		return e.last
	}
	c = e.openLocked(end)
	c.disk = true
	return c
}

// confirm waits until c is durable for the caller.
func (e *Engine) confirm(c *commit, local bool) error {
	end := ending{seen: c}
	if !local && c != nil && c.number > e.onDisk.Load() {
		e.mu.Lock()
		if end.seen = c; !e.closed { // Close takes everything to the disk
			end.seen = e.toDiskLocked(c, &end)
		} else {
			end.seen = e.last
		}
		e.mu.Unlock()
	}
	return e.settle(&end)
}

// settle does what is left of a transaction outside the lock: it waits until
// what the transaction has seen or done is durable, then tells the watches.
func (e *Engine) settle(end *ending) error {
	c := end.seen
	if end.mine {
		c.err = e.carry(c)
		c.done.Done() // the only one: to wait for c is to wait for its append
	}
	if err := c.wait(); err != nil {
		return err
	}
	e.hub.Notify(end.changed...)
	return nil
}

// carry closes c, which is the open commit, appends it to the store and waits
// until it is durable.
//
// Commits reach the store in the order of their transactions: a new commit
// opens only after this one has closed, and this one already holds appending;
// the new one must take appending too, so it is appended later. So when a
// commit is durable, all before it are.
func (e *Engine) carry(c *commit) error {
	e.appending.Lock()
	e.mu.Lock()
	if c.disk {
		e.mu.Unlock()
		runtime.Gosched() // who can go on now joins, and shares the sync
		e.mu.Lock()
	}
	e.open = nil
	disk := c.disk
	e.mu.Unlock()
	// Encoded without the lock: transactions go on, and make up the next.
	writes := e.clock.beat(c.writes, c.beat)
	if c.cold != nil {
		c.cold.Scan(func(key string, w coldWrite) bool {
			writes = append(writes, Write{Space: Cold, Key: key, Delete: w.gone, value: w.value, due: never})
			return true
		})
	}
	e.carried.Store(c) // before anybody can read from the store what is in it
	pending, err := e.store.Append(Batch{Writes: writes, Disk: disk})
	if err != nil {
		e.fail(err)
	} else {
		c.applied.Store(true)
	}
	c.writes = nil // the commit may be referred to as the last for long
	e.mu.Lock()
	e.spare = reuse(writes)
	e.mu.Unlock()
	e.appending.Unlock()
	if err == nil {
		if err = pending.Wait(); err != nil {
			e.fail(err)
		}
	}
	// The store may have failed on another goroutine: then nothing is certain.
	if err := e.failed(); err != nil {
		return err
	}
	for old := e.onDisk.Load(); disk && old < c.number && !e.onDisk.CompareAndSwap(old, c.number); old = e.onDisk.Load() {
	}
	return nil
}
