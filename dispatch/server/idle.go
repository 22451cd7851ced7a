package server

import (
	"context"
	"sync"
	"time"
)

// attendance counts the connections of the socket, and knows since when there
// have been none.
type attendance struct {
	mu      sync.Mutex
	n       int
	since   time.Time     // time of the last change
	changed chan struct{} // closed on the next change
}

func newAttendance() *attendance {
	return &attendance{since: time.Now(), changed: make(chan struct{})}
}

func (a *attendance) add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n += n
	a.since = time.Now()
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *attendance) look() (n int, since time.Time, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n, a.since, a.changed
}

// Connections returns the number of connected clients whose sessions last as
// long as their connections, at this server or through it.
func (s *Server) Connections() int64 {
	n, _, _ := s.attendance.look()
	return int64(n)
}

// AwaitIdle returns once no client has been connected to the socket for d. A
// client that connects at that instant finds a daemon that is ending, and
// connects again.
func (s *Server) AwaitIdle(ctx context.Context, d time.Duration) error {
	for {
		n, since, changed := s.attendance.look()
		var idle <-chan time.Time
		if n == 0 {
			left := time.Until(since.Add(d))
			if left <= 0 {
				return nil
			}
			idle = time.After(left)
		}
		select {
		case <-idle:
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
