package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// presence judges whether an HTTP client is still there. HTTP has no
// connection that stands for a client; there are its requests: GETs that stay
// open for notifications, and POSTs that are answered. While any is open, the
// client is there. When none is, what counts is how the last of them went:
//
//   - lost: a stream or a call broke off at the client's end. A client that was
//     killed looks like this, and one that reconnects is back within a second
//     or so. The session ends after the grace, unless the client is heard from.
//   - answered: the client is thinking, running a build, or was killed between
//     two calls and never held a stream. Nothing tells these apart, so the
//     session lasts until the idle limit. What it holds is bounded by ttl.
//
// A call that its client cancelled breaks off too, and is not counted as lost.
// An answer clears a loss: a client that gave up its stream goes on without.
// But not one within settle of the loss: requests that a client sent just
// before it was killed are read, and answered, just after.
type presence struct {
	grace, idle time.Duration
	over        func(cause error) // called once, on a goroutine of its own

	mu       sync.Mutex
	open     int
	begun    int       // requests ever
	lostAt   time.Time // zero: nothing is lost
	lostCall string    // the call that was lost, if it was one
	timer    *time.Timer
	ended    bool
}

// settle is how long after its death requests of a killed client may still
// turn up.
const settle = 500 * time.Millisecond

// errLost is why a session ends whose client broke off.
var errLost = errors.New("its client lost its connection and did not come back")

// begin counts a request in. It reports false if the session has ended.
func (p *presence) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return false
	}
	p.open++
	p.begun++
	if p.timer != nil {
		p.timer.Stop()
	}
	return true
}

// beginStream counts a stream in: what was lost is back.
func (p *presence) beginStream() bool {
	if !p.begin() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAt = time.Time{}
	return true
}

// answered counts out a request whose client was there to the end.
func (p *presence) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.lostAt) >= settle {
		p.lostAt = time.Time{}
	}
	p.doneLocked()
}

// lost counts out a request that broke off; call is the key of its call, or
// "" for a stream.
func (p *presence) lost(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAt, p.lostCall = time.Now(), call
	p.doneLocked()
}

// unread takes back an answered: the client closed its connection with the
// answer unread.
func (p *presence) unread(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.lostAt, p.lostCall = time.Now(), call
	if p.open == 0 {
		p.watchLocked()
	}
}

// cancelled explains the loss of a call.
func (p *presence) cancelled(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call != "" && p.lostCall == call {
		p.lostAt = time.Time{}
	}
}

func (p *presence) doneLocked() {
	p.open--
	if p.open > 0 || p.ended {
		return
	}
	p.watchLocked()
}

// watchLocked sets the timer of a session that no request is in.
func (p *presence) watchLocked() {
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

// expire ends the session unless a request began since the timer was set: it
// may fire while begin stops it.
func (p *presence) expire(begun int, cause error) {
	p.mu.Lock()
	over := !p.ended && p.begun == begun
	p.ended = p.ended || over
	p.mu.Unlock()
	if over {
		p.over(cause)
	}
}

// stop ends the watch. It reports false if it had ended.
func (p *presence) stop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.ended
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
	return !was
}
