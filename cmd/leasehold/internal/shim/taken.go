package shim

import (
	"io"
	"os"
	"sync/atomic"
	"time"
)

// A client that cancels a call has not read its answer, says the protocol, so the
// daemon undoes what the call did. Some clients cancel what they have long read, as
// those made with the TypeScript SDK do when they end the step that a call was made
// in. The shim tells the two apart: it sees when the client has read an answer.

const (
	// onItsWay is how long a cancel may have been on its way that the client sent
	// before it read the answer.
	onItsWay = 20 * time.Millisecond

	firstGlance, lastGlance = time.Millisecond, 100 * time.Millisecond

	maxTaken = 256 // answers that are remembered
)

// A delivery knows which answers the client has read.
type delivery struct {
	stdout  io.Writer
	unread  func() (bytes int, ok bool) // of what was written to stdout
	written atomic.Int64                // lines, by the writer

	sent    int64 // lines, to the writer
	pending []sentAnswer
	taken   map[string]time.Time // by the keys of their requests, since when
	order   []string             // of taken, the oldest first

	glance time.Duration
	timer  <-chan time.Time // looks again; nil if nothing is pending
}

type sentAnswer struct {
	key  string
	line int64
}

func newDelivery(stdout io.Writer) *delivery {
	d := &delivery{stdout: stdout, unread: func() (int, bool) { return 0, false }, taken: make(map[string]time.Time)}
	if f, ok := stdout.(*os.File); ok {
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

// hand notes a line that the writer has got.
func (d *delivery) hand(answer string) {
	d.sent++
	if answer == "" {
		return
	}
	delete(d.taken, answer) // the id is used again
	d.pending = append(d.pending, sentAnswer{answer, d.sent})
	if d.timer == nil || d.glance > firstGlance {
		d.glance = firstGlance
		d.timer = time.After(d.glance)
	}
}

// look finds out which answers the client has read.
func (d *delivery) look() {
	written := d.written.Load() // first: what is written from here on may be unread
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

// has reports whether the client had read the answer when it sent what has just
// come from it.
func (d *delivery) has(key string) bool {
	since, ok := d.taken[key]
	return ok && time.Since(since) > onItsWay
}
