package simulation

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how much lies on the way in one direction, as in a system's socket.
const window = 64 << 10

// newWire returns the two ends of a connection. Unlike those of [net.Pipe] they
// have a buffer, and nobody who writes or reads has a mutex while he waits: a
// bubble's clock stands still for whoever waits for a mutex.
func newWire() (near, far net.Conn) {
	there, back := newLane(), newLane()
	return &end{in: back, out: there}, &end{in: there, out: back}
}

// A lane is one direction.
type lane struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	bytes   []byte
	closed  bool // by either end: what was written is still read
	reset   bool // by the end that reads the other lane: it left something unread there

	readBy, writtenBy time.Time
}

func newLane() *lane { return &lane{changed: make(chan struct{})} }

// change changes something and wakes whoever waits.
func (l *lane) change(what func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what()
	close(l.changed)
	l.changed = make(chan struct{})
}

// await calls try until it is done, the lane is closed, or the deadline passed.
func (l *lane) await(deadline func() time.Time, try func() (done bool, err error)) error {
	for {
		l.mu.Lock()
		done, err := try()
		changed, by := l.changed, deadline()
		l.mu.Unlock()
		if done || err != nil {
			return err
		}
		var late <-chan time.Time
		if !by.IsZero() {
			left := time.Until(by)
			if left <= 0 {
				return os.ErrDeadlineExceeded
			}
			timer := time.NewTimer(left)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

// An end is one end of a connection.
type end struct{ in, out *lane }

func (e *end) Read(p []byte) (n int, err error) {
	l := e.in
	err = l.await(func() time.Time { return l.readBy }, func() (bool, error) {
		if !l.readBy.IsZero() && time.Until(l.readBy) <= 0 {
			return false, os.ErrDeadlineExceeded
		}
		if len(l.bytes) == 0 {
			if l.reset {
				return false, syscall.ECONNRESET
			}
			if l.closed {
				return false, io.EOF
			}
			return len(p) == 0, nil
		}
		n = copy(p, l.bytes)
		l.bytes = l.bytes[n:]
		return true, nil
	})
	if n > 0 {
		l.change(func() {})
	}
	return n, err
}

func (e *end) Write(p []byte) (n int, err error) {
	l := e.out
	for n < len(p) && err == nil {
		wrote := 0
		err = l.await(func() time.Time { return l.writtenBy }, func() (bool, error) {
			if l.closed {
				return false, net.ErrClosed
			}
			wrote = min(window-len(l.bytes), len(p)-n)
			l.bytes = append(l.bytes, p[n:n+wrote]...)
			return wrote > 0, nil
		})
		n += wrote
		l.change(func() {})
	}
	return n, err
}

// Close closes both directions. What was written is still read. If something is
// unread at this end, the other comes to know that, as over TCP.
func (e *end) Close() error {
	reset := false
	e.in.change(func() { reset, e.in.closed = len(e.in.bytes) > 0, true })
	e.out.change(func() { e.out.closed, e.out.reset = true, e.out.reset || reset })
	return nil
}

// CloseWrite closes the direction in which this end writes.
func (e *end) CloseWrite() error {
	e.out.change(func() { e.out.closed = true })
	return nil
}

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.change(func() { e.in.readBy = t })
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.out.change(func() { e.out.writtenBy = t })
	return nil
}

func (e *end) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }
func (e *end) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 1024} }
