package shim

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// By the protocol, a client that cancels a call has not read its answer, so the
// daemon undoes the call. But some clients also cancel calls whose answers they
// have read: those made with the TypeScript SDK do so when they end the step in
// which a call was made. The shim can distinguish the two, because it sees when
// the client has read an answer.

const (
	// onItsWay is how long a cancel may be under way that the client sent
	// before it read the answer.
	onItsWay = 20 * time.Millisecond

	firstGlance, lastGlance = time.Millisecond, 100 * time.Millisecond

	maxTaken = 256 // answers that are remembered
)

// A delivery knows which answers the client has read.
type delivery struct {
	stdout  io.Writer
	unread  func() (bytes int, ok bool) // unread part of what was written to stdout
	written atomic.Int64                // lines written; updated by the writer

	sent    int64 // lines passed to the writer
	pending []sentAnswer
	taken   map[string]time.Time // when an answer was read, by the key of its request
	order   []string             // the keys of taken, oldest first

	glance time.Duration
	timer  <-chan time.Time // the next check; nil if nothing is pending
}

type sentAnswer struct {
	key  string
	line int64
}

func newDelivery(stdout io.Writer) *delivery {
	d := &delivery{stdout: stdout, unread: func() (int, bool) { return 0, false }, taken: make(map[string]time.Time)}
	if f, ok := terminal.FileOf(stdout); ok {
		d.unread = func() (int, bool) { return unreadBytes(f) }
	}
	return d
}

// Write writes a line.
func (d *delivery) Write(line []byte) (int, error) {
	n, err := d.stdout.Write(line)
	d.written.Add(1)
	return n, err
}

// hand records a line that was passed to the writer.
func (d *delivery) hand(answer string) {
	d.sent++
	if answer == "" {
		return
	}
	delete(d.taken, answer) // the client uses the id again
	d.pending = append(d.pending, sentAnswer{answer, d.sent})
	if d.timer == nil || d.glance > firstGlance {
		d.glance = firstGlance
		d.timer = time.After(d.glance)
	}
}

// look checks which answers the client has read.
func (d *delivery) look() {
	written := d.written.Load() // must come first: a line written later may be unread
	if bytes, ok := d.unread(); !ok || bytes == 0 {
		now := time.Now()
		for len(d.pending) > 0 && d.pending[0].line <= written {
			d.note(d.pending[0].key, now)
			d.pending = d.pending[1:]
		}
	}
	d.timer = nil
	if len(d.pending) > 0 {
		d.glance = min(2*d.glance, lastGlance)
		d.timer = time.After(d.glance)
	}
}

func (d *delivery) note(key string, now time.Time) {
	if _, known := d.taken[key]; !known {
		d.order = append(d.order, key)
	}
	d.taken[key] = now
	if len(d.order) > maxTaken {
		delete(d.taken, d.order[0])
		d.order = d.order[1:]
	}
}

// has reports whether the client had already read the answer when it sent the
// message that has just arrived.
func (d *delivery) has(key string) bool {
	since, ok := d.taken[key]
	return ok && time.Since(since) > onItsWay
}
