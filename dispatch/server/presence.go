package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// presence decides whether an HTTP client is still there. HTTP has no
// connection that represents a client, only requests: GETs that stay open for
// notifications, and POSTs that are answered. While any request is open, the
// client is there. Otherwise the outcome of the last ones counts:
//
//   - lost: a stream or a call was broken off by the client's end. This is how a
//     client that was killed looks. A client that reconnects is back within about
//     a second. The session ends after a grace, unless the client sends
//     something. The grace is longer if it was another server that was lost.
//   - answered: the client is thinking, is running a build, or was killed between
//     two calls without an open stream. These cases cannot be distinguished, so
//     the session lasts until the idle limit. What it holds is limited by the ttl.
//
// A call that its client cancelled, or has sent again, is broken off too, and does
// not count as lost: the client was there after that. An answer clears a loss, because a client that has given up its stream
// may continue without it. An answer within settle of the loss does so only if
// a request arrived later than what was on its way at the loss: requests that a
// client sent just before it was killed are answered just after.
type presence struct {
	idle time.Duration
	over func(cause error) // called once, on its own goroutine

	mu       sync.Mutex
	open     int
	begun    int           // total number of requests
	lostAt   time.Time     // zero: not lost
	back     bool          // a request has arrived since then
	lostCall string        // the call that was lost; "": a stream
	grace    time.Duration // after that loss
	timer    *time.Timer
	ended    bool
}

const (
	settle   = 500 * time.Millisecond // how long after the death of a client its last requests may be answered
	onItsWay = 20 * time.Millisecond  // and how long after it they may arrive
)

// errLost is the cause when a session ends because its client was lost.
var errLost = errors.New("its client lost its connection and did not come back")

// begin counts a request that begins. It returns false if the session has
// ended.
func (p *presence) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.open++
	p.begun++
	p.back = time.Since(p.lostAt) >= onItsWay
	if p.timer != nil {
		p.timer.Stop()
	}
	return true
}

// answered counts a request that has ended and whose client received the whole
// answer.
func (p *presence) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.back || time.Since(p.lostAt) >= settle {
		p.lostAt = time.Time{}
	}
	p.doneLocked()
}

// lose notes that a request was broken off, or that its answer was not read, which
// may become known after answered. call is the key of its call, or "" for a stream,
// and grace is how long its client may take to come back.
func (p *presence) lose(call string, grace time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAt, p.lostCall, p.grace, p.back = time.Now(), call, grace, false
	if p.open == 0 {
		p.watchLocked()
	}
}

// done counts a request that has ended without an answer.
func (p *presence) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doneLocked()
}

// forgive clears the loss of a call that its client has cancelled, or sent again.
func (p *presence) forgive(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call != "" && p.lostCall == call {
		p.lostAt = time.Time{}
	}
}

func (p *presence) doneLocked() {
	if p.open--; p.open == 0 {
		p.watchLocked()
	}
}

// watchLocked sets the timer of a session without open requests.
func (p *presence) watchLocked() {
	if p.ended {
		return
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	limit, cause := p.idle, fmt.Errorf("its client made no request for %v", p.idle)
	if !p.lostAt.IsZero() {
		limit, cause = p.grace, errLost
	}
	begun := p.begun
	p.timer = time.AfterFunc(limit, func() { p.expire(begun, cause) })
}

// expire ends the session, unless a request has begun since the timer was set.
// The timer may fire while begin stops it.
func (p *presence) expire(begun int, cause error) {
	p.mu.Lock()
	over := !p.ended && p.begun == begun
	p.ended = p.ended || over
	p.mu.Unlock()
	if over {
		p.over(cause)
	}
}

// stop ends the watch.
func (p *presence) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
