package memory

import (
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/engine"
)

// Work that others wait behind is done in stretches. A transaction that has much to
// do asks Spent and leaves the rest to another; a snapshot rests while it scans. In
// between, the others go first: whoever held the lock for a stretch, or kept a
// processor busy, sleeps for as long as that took. Sleeping is what it takes: where
// all processors are busy, the system lets a thread that has run go on for several
// milliseconds before one that has just become ready. Nobody rests where nobody
// else is at work.
const (
	stretch = 500 * time.Microsecond
	maxRest = 2 * time.Millisecond

	restRows = 16       // a snapshot looks at the time once for so many
	longRead = 32 << 10 // bytes: what is read is also sorted, encoded and sent
)

// A pace is the work of one transaction since it began or rested.
type pace struct {
	began *atomic.Uint64 // how many transactions have begun, ever
	seen  uint64         // of those, when the work began
	since time.Time
	spent bool // others were told to wait no longer
	rows  int

	reader engine.Reader // of a snapshot that is not long yet, or nil
	bytes  int           // that it has read
}

// between is yield with rests.
func (t *tx) between(yield func(engine.Row) bool) func(engine.Row) bool {
	return func(r engine.Row) bool { return t.hasRead(&r) && yield(r) }
}

// hasRead counts a row that a snapshot has read, and reports whether it may go on.
func (t *tx) hasRead(r *engine.Row) bool {
	p := &t.pace
	p.bytes += len(r.Key) + len(r.Value)
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
	if p.began.Load() != p.seen {
		time.Sleep(min(worked, maxRest))
	}
	p.since, p.seen = time.Now(), p.began.Load()
}
