package exec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/engine/clock"
)

const (
	// execGrace is how long a program may take to end once its lease is lost.
	execGrace = 5 * time.Second

	// maxCall is how long one call waits; clients of other kinds are cut off
	// at 60 s.
	maxCall = 50 * time.Second

	// execOutage is how long exec waits in line for a daemon to come back.
	execOutage = 30 * time.Second

	// maxRenewal is the longest time between two renewals, however long the
	// ttl: it is how late a revocation may be noticed. A renewal costs the
	// daemon no disk write.
	maxRenewal = 2 * time.Second

	releaseTimeout = 2 * time.Second
)

// A hold is leases that exec has, or wants.
//
// By a clock that goes on during a sleep, it trusts them until the time at which it
// sent the last renewal that succeeded, and their ttl from there, less a margin for
// drift: the daemon counts from when it was received, which was later.
type hold struct {
	cfg    execConfig
	link   *execLink
	leases []lease

	// linked is called with each connection but the first.
	linked func()

	mu    sync.Mutex
	until time.Time // by now()
}

// A lease is one as it was granted.
type lease struct {
	LeaseID string `json:"lease_id"`
	Name    string
	Key     string
	Token   uint64
}

func (h *hold) deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// lastOrders is when the program must be told to end if it is to be gone by
// the deadline.
func (h *hold) lastOrders() time.Time {
	return h.deadline().Add(-min(execGrace, h.cfg.ttl/4))
}

// confirm renews what was granted: the grant may have lain there since the
// beginning of a long call, and exec trusts nothing older than its own word.
func (h *hold) confirm(ctx context.Context) error {
	for failures := 0; ; {
		bounded, cancel := context.WithTimeoutCause(ctx, h.cfg.ttl, errors.New("the daemon does not answer"))
		err := h.renew(bounded)
		cancel()
		var refusal *client.Refusal
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Canceled
		case errors.As(err, &refusal) && refusal.Code != "UNAVAILABLE", permanent(err):
			return err
		case failures == 5:
			return err
		}
		if failures++; backoff(ctx, failures, connection.LastRetry) != nil {
			return context.Canceled
		}
	}
}

// renew renews all leases, and connects for that if need be.
func (h *hold) renew(ctx context.Context) error {
	before := h.link.client
	if err := h.link.connect(ctx); err != nil {
		return err
	}
	if h.link.client != before && h.linked != nil {
		h.linked()
	}
	until := now().Add(h.cfg.ttl - h.cfg.ttl/50)
	for _, l := range h.leases {
		if _, err := h.link.call(ctx, "lease_renew", map[string]any{"lease_id": l.LeaseID, "ttl_secs": h.cfg.ttl.Seconds()}); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
	return nil
}

// A lossError says why the leases are no longer to be trusted.
type lossError struct {
	why string
	by  time.Time // what uses them must be gone by then; zero: they are lost
}

func (e *lossError) Error() string { return e.why }

// keep renews the leases until ctx ends, and then returns nil; or until they
// are lost, or soon will be.
func (h *hold) keep(ctx context.Context) *lossError {
	every := min(h.cfg.ttl/3, maxRenewal)
	var lastErr error
	for failures, next := 0, every; ; {
		orders := time.NewTimer(min(next, h.lastOrders().Sub(now())))
		select {
		case <-orders.C:
		case <-h.link.ended():
			h.link.close()
		case <-ctx.Done():
			orders.Stop()
			return nil
		}
		orders.Stop()
		if !now().Before(h.lastOrders()) {
			if lastErr == nil {
				lastErr = errors.New("leasehold exec did not run for so long")
			}
			return &lossError{fmt.Sprintf("%s cannot be renewed: %v", h.names(), lastErr), h.deadline()}
		}
		bounded, cancel := context.WithTimeoutCause(ctx, h.lastOrders().Sub(now()), errors.New("the daemon does not answer"))
		err := h.renew(bounded)
		cancel()
		var refusal *client.Refusal
		switch {
		case err == nil:
			failures, next, lastErr = 0, every, nil
			continue
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refusal) && refusal.Code != "UNAVAILABLE":
			return &lossError{why: refusal.Message}
		case permanent(err):
			return &lossError{why: fmt.Sprintf("%s: %v", h.names(), err)}
		}
		lastErr = err
		failures++
		next = min(connection.FirstRetry<<min(failures, 10), connection.LastRetry)
	}
}

// held reports, once the program has ended, whether the leases were held until
// now. Where the deadline has passed unnoticed, as for a process that was
// stopped, the daemon knows: it renews nothing that was lost in between.
func (h *hold) held(ctx context.Context) *lossError {
	if now().Before(h.deadline()) {
		return nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, releaseTimeout, errors.New("the daemon does not answer"))
	defer cancel()
	if err := h.renew(bounded); err != nil {
		return &lossError{why: fmt.Sprintf("%s: %v", h.names(), err)}
	}
	return nil
}

// release gives the leases back; the end of the session would, a little later.
func (h *hold) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for _, l := range h.leases {
		if h.link.client == nil {
			return
		}
		_, _ = h.link.call(ctx, "lease_release", map[string]any{"lease_id": l.LeaseID}) // or the daemon is gone
	}
}

func (h *hold) names() string {
	var names []string
	for _, l := range h.leases {
		names = append(names, fmt.Sprintf("lease %q", l.Name+l.Key))
	}
	return strings.Join(names, ", ")
}

// environ is what the program is told of the leases, a line for each.
func (h *hold) environ() []string {
	var keys, tokens []string
	for _, l := range h.leases {
		keys = append(keys, l.Name+l.Key)
		tokens = append(tokens, strconv.FormatUint(l.Token, 10))
	}
	return []string{"LEASEHOLD_LEASE=" + strings.Join(keys, "\n"), "LEASEHOLD_FENCE=" + strings.Join(tokens, "\n")}
}

// now is an instant of the clock that goes on while the machine sleeps. The clock
// of package time stands still then: after a sleep a lease that was lost long ago
// would look held. Instants of now are compared with each other only.
func now() time.Time { return time.Unix(0, int64(clock.Running())) }
