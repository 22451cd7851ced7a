package memory

import (
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Work that others wait for is split. A transaction with much to do asks Spent
// and leaves the rest to another one; a snapshot rests while it scans. In
// between, others go first: after holding the lock, or keeping a processor
// busy, for a stretch, the goroutine sleeps for as long as that took. A sleep
// is necessary: if all processors are busy, the system lets a running thread
// continue for several milliseconds before one that has just become ready. If no
// other transaction has begun, the sleep is short: perhaps nobody else is at work,
// and perhaps the thread that would begin one waits for this processor.
const (
	stretch = 500 * time.Microsecond
	maxRest = 2 * time.Millisecond

	restRows = 16       // a snapshot reads the time once for this many rows
	longRead = 32 << 10 // bytes; rows that were read are also sorted, encoded and sent
	rowCost  = 128      // bytes that a row counts in addition: encoding gives names to its parts
)

// A pace measures the work of one transaction since it began or last rested.
type pace struct {
	began *atomic.Uint64 // number of transactions begun, ever
	seen  uint64         // began when this work started
	since time.Time
	spent bool // the function was told to stop and let others go first
	rows  int

	reader engine.Turn // of a snapshot that does not yet count as long, or nil
	bytes  int         // bytes it has read
}

// between returns yield with rests between rows.
func (t *tx) between(yield func(engine.Row) bool) func(engine.Row) bool {
	return func(r engine.Row) bool { return t.hasRead(&r) && yield(r) }
}

// hasRead counts a row that a snapshot has read, and reports whether it may
// continue.
func (t *tx) hasRead(r *engine.Row) bool {
	p := &t.pace
	p.bytes += len(r.Key) + len(r.Value) + rowCost
	p.rows++
	if p.rows%restRows != 0 && p.bytes < longRead {
		return true
	}
	worked := time.Since(p.since)
	if p.reader != nil && (worked >= stretch || p.bytes >= longRead) {
		long := p.reader.Long
		p.reader = nil
		if err := long(); err != nil {
			t.poison(err)
			return false
		}
		p.since, worked = time.Now(), 0
	}
	p.rest(worked)
	return true
}

// rest lets others go first after a stretch of work.
func (p *pace) rest(worked time.Duration) {
	if worked < stretch {
		return
	}
	rest := min(worked, maxRest)
	if p.began.Load() == p.seen {
		rest /= 4
	}
	time.Sleep(rest)
	p.since, p.seen = time.Now(), p.began.Load()
}
