package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// A hold is a lease, or the claim on a task, that is renewed.
type hold struct {
	c        *Client
	what     string // for people
	token    uint64
	session  string // in which it was granted
	ttl      time.Duration
	renew    func(ctx context.Context, timeout time.Duration) error // asks one server once
	jeopardy func(left time.Duration, err error)

	ctx context.Context
	end context.CancelCauseFunc

	mu       sync.Mutex
	until    time.Duration // by the running clock, which the holder trusts it to
	failures int           // of renewals, in a row
	beat     *time.Timer   // renews
	watch    *time.Timer   // ends it at its deadline
}

// margin is by how much clocks may differ in a ttl, and how late a timer may be.
func margin(ttl time.Duration) time.Duration { return ttl/50 + 10*time.Millisecond }

// begin makes what was granted by a request that was sent at an instant a hold. If that
// was so long ago that a renewal is due, as after a wait, it is renewed first.
func (h *hold) begin(ctx context.Context, sent time.Duration) error {
	h.ctx, h.end = context.WithCancelCause(context.WithoutCancel(ctx))
	h.until = sent + h.ttl - margin(h.ttl)
	for failures := 0; h.c.clock.Running() >= sent+h.ttl/3; failures++ {
		sent = h.c.clock.Running()
		err := h.renew(ctx, h.patience())
		if err == nil {
			h.until = sent + h.ttl - margin(h.ttl)
			break
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
	if err := h.c.keep(h); err != nil {
		h.end(err)
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watch = time.AfterFunc(h.nextLook(), h.look)
	h.beat = time.AfterFunc(h.third(), h.keep)
	return nil
}

// keep adds a hold to those that end with their session. One whose session has ended
// meanwhile, with which it went back, is none.
func (c *Client) keep(h *hold) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.session != h.session:
		return ErrSession
	}
	c.holds[h.token] = h
	return nil
}

// maxConfirms bounds how often a grant is asked for again before it is given up.
const maxConfirms = 5

// third is when to renew: spread, so that what was granted together is not renewed
// together for ever.
func (h *hold) third() time.Duration {
	third := h.ttl / 3
	return third - time.Duration(rand.Int64N(int64(third/5)+1))
}

// patience is how long one renewal may take before another is tried.
func (h *hold) patience() time.Duration { return max(h.ttl/6, 100*time.Millisecond) }

// nextLook is when to look at the clock. A timer stands still while the machine sleeps.
func (h *hold) nextLook() time.Duration {
	left := h.until - h.c.clock.Running()
	if h.c.clock.Sleeps {
		left = min(left, time.Second)
	}
	return max(left, 0)
}

// look ends the hold if its deadline has passed.
func (h *hold) look() {
	if h.check() == nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watch.Reset(h.nextLook())
	}
}

// check is why it is not held; nil if it is.
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

// keep renews it, and says when to do so next.
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

// lose ends it, and reports whether it was held.
func (h *hold) lose(cause error) bool {
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

// refused reports whether a renewal was answered: what it is of is not held.
func refused(err error) bool {
	if ended(err) {
		return true
	}
	refusal, ok := errors.AsType[*Error](err)
	return ok && refusal.lost()
}

// lossOf is why something is lost whose renewal was refused.
func lossOf(err error) error {
	if ended(err) {
		return ErrSession
	}
	return lossBecause(err.Error())
}

func lossBecause(reason string) error { return fmt.Errorf("%w: %s", ErrLost, reason) }
