package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A hold is a lease, or the claim on a task, that the client renews.
type hold struct {
	c        *Client
	what     string // for log messages
	token    uint64
	session  string // the session in which it was granted
	ttl      time.Duration
	renew    func(ctx context.Context, timeout time.Duration) error // sends one renewal to one server
	jeopardy func(left time.Duration, err error)

	ctx context.Context
	end context.CancelCauseFunc

	over func() // called when it is no longer held; guarded by Client.mu

	mu       sync.Mutex
	until    time.Duration // local deadline by the running clock
	failures int           // failed renewals in a row
	beat     *time.Timer   // for the next renewal
	watch    *time.Timer   // for the deadline
}

// margin is how far clocks may drift apart in a TTL, plus how late a timer may
// fire.
func margin(ttl time.Duration) time.Duration { return ttl/50 + 10*time.Millisecond }

// begin starts the hold for what was granted by a request sent at an instant.
// When the hold has begun, and is no longer held, over is called; if begin
// returns an error, it is not.
func (h *hold) begin(ctx context.Context, sent time.Duration, over func()) error {
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	h.until = sent + h.ttl - margin(h.ttl)
	if err := h.c.keep(h); err != nil {
		h.end(err)
		return err
	}
	if err := h.confirm(ctx, sent); err != nil {
		h.leave(err)
		return err
	}
	if !h.c.callWhenOver(h, over) {
		<-h.ctx.Done()
		return context.Cause(h.ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		h.watch = time.AfterFunc(h.nextLook(), h.look)
		h.beat = time.AfterFunc(h.third(), h.keep)
	}
	return nil
}

// confirm renews what was granted if a renewal is due by now, as after a wait.
func (h *hold) confirm(ctx context.Context, sent time.Duration) error {
	if h.c.clock.Running() < sent+h.ttl/3 {
		return nil
	}
	for failures := 0; ; failures++ {
		sent = h.c.clock.Running()
		err := h.renew(ctx, h.patience())
		if err == nil {
			h.mu.Lock()
			h.until = sent + h.ttl - margin(h.ttl)
			h.mu.Unlock()
			return nil
		}
		if refused(err) {
			return lossOf(err)
		}
		if failures == maxConfirms {
			return err
		}
		if err := pause(ctx, failures); err != nil {
			return err
		}
	}
}

// keep registers a hold, which then ends with its session. It refuses what was
// lost before its answer came, also by the end of the session.
func (c *Client) keep(h *hold) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.session != h.session:
		return ErrSession
	}
	if reason, lost := c.early[h.token]; lost {
		return lossBecause(reason)
	}
	c.holds[h.token] = h
	return nil
}

// callWhenOver reports whether the hold is still held.
func (c *Client) callWhenOver(h *hold, over func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.holds[h.token] == h
	if held {
		h.over = over
	}
	return held
}

// maxConfirms is how often confirm retries the renewal before it gives up.
const maxConfirms = 5

// third is the time until the next renewal. It is randomized, so that leases
// that were granted together are not always renewed together.
func (h *hold) third() time.Duration {
	third := h.ttl / 3
	return third - time.Duration(rand.Int64N(int64(third/5)+1))
}

// patience is how long one renewal may take before another is tried.
func (h *hold) patience() time.Duration {
	return min(max(h.ttl/6, 100*time.Millisecond), answerTimeout)
}

// nextLook is the time until the next look at the clock. A timer stops while
// the machine sleeps.
func (h *hold) nextLook() time.Duration {
	left := h.until - h.c.clock.Running()
	if h.c.clock.Sleeps {
		left = min(left, time.Second)
	}
	return max(left, 0)
}

// look ends the hold if its deadline has passed, and otherwise sets the timer
// again.
func (h *hold) look() {
	if h.check() == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watch.Reset(h.nextLook())
	}
}

// check returns why the hold has ended, or nil. It ends the hold if its
// deadline has passed.
func (h *hold) check() error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	h.mu.Lock()
	late := h.c.clock.Running() >= h.until
	h.mu.Unlock()
	if late {
		h.lose(ErrDeadline)
		return context.Cause(h.ctx)
	}
	return nil
}

// keep renews the hold and sets the timer for the next renewal.
func (h *hold) keep() {
	if h.check() != nil {
		return
	}
	sent := h.c.clock.Running()
	err := h.renew(h.ctx, min(h.patience(), h.left()))
	switch {
	case h.check() != nil:
		return
	case err != nil && refused(err):
		h.lose(lossOf(err))
		return
	}
	h.mu.Lock()
	next := h.third()
	if err == nil {
		h.until, h.failures = max(h.until, sent+h.ttl-margin(h.ttl)), 0
	} else {
		next = min(firstRetry<<min(h.failures, 10), h.patience())
		h.failures++
	}
	h.beat.Reset(next)
	h.mu.Unlock()
	if err != nil {
		left := h.left()
		h.c.log.Warn("a renewal failed", "of", h.what, "left", left, "err", err)
		if h.jeopardy != nil {
			h.jeopardy(left, err)
		}
	}
}

func (h *hold) left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, h.until-h.c.clock.Running())
}

// lose ends the hold.
func (h *hold) lose(cause error) {
	if h.leave(cause) && h.over != nil {
		h.over()
	}
}

// leave is lose for what is then released: over is not called before that. It
// reports whether it was held.
func (h *hold) leave(cause error) bool {
	h.c.mu.Lock()
	was := h.c.holds[h.token] == h
	if was {
		delete(h.c.holds, h.token)
	}
	h.c.mu.Unlock()
	if !was {
		return false
	}
	h.end(cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beat != nil {
		h.beat.Stop()
		h.watch.Stop()
	}
	if errors.Is(cause, ErrLost) {
		h.c.log.Warn("lost", "what", h.what, "token", h.token, "why", cause)
	}
	return true
}

// refused reports whether the server has answered that the lease or claim is
// not held.
func refused(err error) bool {
	if ended(err) {
		return true
	}
	refusal, ok := errors.AsType[*Error](err)
	return ok && refusal.lost()
}

// lossOf returns the cause of a loss from the refusal of a renewal.
func lossOf(err error) error {
	if ended(err) {
		return ErrSession
	}
	return lossBecause(err.Error())
}

func lossBecause(reason string) error { return fmt.Errorf("%w: %s", ErrLost, reason) }
