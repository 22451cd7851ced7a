package exec

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
)

const (
	// execGrace is how long a program may take to end after its lease is lost.
	execGrace = 5 * time.Second

	// maxCall is how long one call waits. Other clients cut calls at 60 s.
	maxCall = 50 * time.Second

	// firstCall is how long the first call waits if a user looks on. The user is
	// then told who is in the way.
	firstCall = time.Second

	// execOutage is how long a waiting exec waits for a daemon to come back.
	execOutage = 30 * time.Second

	// maxRenewal is the longest time between two renewals, however long the ttl
	// is. A revocation is noticed within this time. A renewal costs the daemon
	// no disk write.
	maxRenewal = 2 * time.Second

	// releaseTimeout is how long exec tries to release its leases at the end. A server
	// that takes over from one that was killed needs some seconds.
	releaseTimeout = 10 * time.Second

	// heldTimeout is how long the daemon may take to say whether leases are still held that
	// exec could not renew in time.
	heldTimeout = 2 * time.Second
)

// A hold is the leases that exec holds or wants.
//
// It trusts its leases for one ttl, less a margin for clock drift, from the
// time at which it sent the last successful renewal. The daemon counts from a
// later time, at which it received that renewal. The clock used runs while the
// machine sleeps.
type hold struct {
	cfg    execConfig
	link   *execLink
	leases []lease

	// linked is called after each connection but the first.
	linked func()

	// changed is called once the program runs, after each renewal and when keep finds that it
	// is late.
	changed func()

	// waits is called once, with who is in the way, if the wait takes longer than
	// firstCall. It is nil if no user looks on.
	waits func(behind string)

	mu    sync.Mutex
	until time.Time // by now()
}

// A lease is a granted lease.
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

// lastOrders is the latest time at which the program can be told to end and
// still be gone by the deadline.
func (h *hold) lastOrders() time.Time {
	return h.deadline().Add(-h.margin())
}

// margin is the time before the deadline that ending the program may take.
func (h *hold) margin() time.Duration { return min(execGrace, h.cfg.ttl/4) }

// confirm renews the new leases. A grant may be as old as the call that waited
// for it, and exec trusts only times that it has measured itself.
func (h *hold) confirm(ctx context.Context) error {
	patience := time.Now().Add(execOutage)
	for failures := 0; ; {
		bounded, cancel := context.WithTimeoutCause(ctx, min(h.cfg.ttl, connection.HelloTimeout), errors.New("the daemon does not answer"))
		err := h.renew(bounded)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Canceled
		case refused(err) != nil, connection.Final(err), time.Now().After(patience):
			return err
		}
		if failures++; connection.Pause(ctx, connection.RetryAfter(failures)) != nil {
			return context.Canceled
		}
	}
}

// refused returns the refusal of a call if it is for good.
func refused(err error) *client.Refusal {
	refusal, ok := errors.AsType[*client.Refusal](err)
	if !ok || refusal.Passing() {
		return nil
	}
	return refusal
}

// renew renews all leases, after connecting if necessary.
func (h *hold) renew(ctx context.Context) error {
	before := h.link.client
	if err := h.link.connect(ctx); err != nil {
		return ended(err)
	}
	if h.link.client != before && h.linked != nil {
		h.linked()
		if len(h.leases) == 0 && !h.link.client.Resumed {
			return &client.Refusal{Code: "NOT_FOUND", Message: "the session has ended, or the daemon has another state now"}
		}
	}
	until := now().Add(h.cfg.ttl - h.cfg.ttl/50)
	for _, l := range h.leases {
		if _, err := h.link.call(ctx, "lease_renew", map[string]any{"lease_id": l.LeaseID, "ttl_secs": h.cfg.ttl.Seconds()}); err != nil {
			return l.unknown(err)
		}
	}
	h.mu.Lock()
	h.until = until
	h.mu.Unlock()
	if h.changed != nil {
		h.changed()
	}
	return nil
}

// ended rewords the refusal to resume a session, which tells an agent to open another.
func ended(err error) error {
	refused, ok := errors.AsType[*server.HelloError](err)
	if !ok || refused.Next == "" {
		return err
	}
	worded := *refused
	worded.Message = strings.TrimPrefix(strings.TrimSuffix(refused.Message, refused.Next), "unauthenticated: ") + "; see how far the program came, and run the command again"
	return &worded
}

// unknown rewords the refusal to renew a lease of which the daemon knows nothing.
func (l *lease) unknown(err error) error {
	var refusal *client.Refusal
	if !errors.As(err, &refusal) || refusal.Code != "NOT_HOLDER" {
		return err
	}
	worded := *refusal
	worded.Message = fmt.Sprintf("the daemon does not know lease %q: the program has released it, the session has ended, or the daemon has another state now", l.Name+l.Key)
	return &worded
}

// A lossError says why the leases can no longer be trusted.
type lossError struct {
	why string
	by  time.Time // the program must be gone by then; zero: the leases are lost already
}

func (e *lossError) Error() string { return e.why }

// keep renews the leases until ctx ends, and then returns nil. If the leases
// are lost or are about to be, it returns why. If it was too late to renew them because
// this process could not run, it asks the daemon for a while all the same: the daemon still
// renews what nobody else has taken.
func (h *hold) keep(ctx context.Context) *lossError {
	every := min(h.cfg.ttl/3, maxRenewal)
	var lastErr error
	end := h.lastOrders() // until when to ask
	late := false         // this process was stopped, or the machine slept
	for failures, next := 0, every; ; {
		select {
		case <-time.After(min(next, end.Sub(now()))):
		case <-h.link.ended():
			h.link.close()
		case <-ctx.Done():
			return nil
		}
		left := end.Sub(now())
		switch {
		case left > 0:
		case lastErr == nil, left < -h.margin():
			late, left = true, heldTimeout
			if by := h.deadline().Sub(now()); by > 0 {
				left = min(left, by/2)
			}
			end = now().Add(left)
			if h.changed != nil {
				h.changed()
			}
		default:
			if late {
				lastErr = fmt.Errorf("leasehold exec was stopped, or the machine slept, for too long; %w", lastErr)
			}
			return &lossError{fmt.Sprintf("%s cannot be renewed: %v", h.names(), lastErr), h.deadline()}
		}
		if failures == 0 && len(h.link.dialer.Servers()) > 1 {
			left /= 2 // if the server stands still, another has time to answer
		}
		bounded, cancel := context.WithTimeoutCause(ctx, left, errors.New("the daemon does not answer"))
		err := h.renew(bounded)
		cancel()
		if err != nil {
			h.link.dialer.Avoid()
		}
		switch {
		case err == nil:
			failures, next, lastErr, late, end = 0, every, nil, false, h.lastOrders()
			continue
		case ctx.Err() != nil:
			return nil
		case refused(err) != nil:
			return &lossError{why: refused(err).Message}
		case connection.Final(err):
			return &lossError{why: fmt.Sprintf("%s: %v", h.names(), err)}
		}
		lastErr = err
		failures++
		next = connection.RetryAfter(failures)
	}
}

// held reports, after the program has ended, whether the leases were held all
// the time. If the deadline has passed, for example because this process was
// stopped, it asks the daemon, which does not renew a lease that was lost in
// between.
func (h *hold) held(ctx context.Context) *lossError {
	if now().Before(h.deadline()) {
		return nil
	}
	bounded, cancel := context.WithTimeoutCause(ctx, heldTimeout, errors.New("the daemon does not answer"))
	defer cancel()
	if err := h.renew(bounded); err != nil {
		return &lossError{why: fmt.Sprintf("%s: %v", h.names(), err)}
	}
	return nil
}

// release releases the leases. The end of the session would do so a little later. But if
// the connection to a server elsewhere is lost, that server, or the next one to lead the run,
// waits for this process to come back, so release connects again.
func (h *hold) release(ctx context.Context) {
	limit := releaseTimeout
	if by := h.deadline(); !by.IsZero() {
		limit = min(limit, by.Sub(now()))
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	elsewhere := h.link.dialer.Elsewhere()
	for failures, left := 0, h.leases; len(left) > 0; {
		if h.link.client == nil && !elsewhere {
			return // a daemon on this machine sees that this process has ended
		}
		_, err := h.link.call(ctx, "lease_release", map[string]any{"lease_id": left[0].LeaseID})
		if err == nil || !elsewhere || refused(err) != nil {
			left = left[1:]
			continue
		}
		if failures++; connection.Final(err) || connection.Pause(ctx, connection.RetryAfter(failures)) != nil {
			return
		}
	}
}

func (h *hold) names() string {
	var names []string
	for _, l := range h.leases {
		names = append(names, fmt.Sprintf("lease %q", l.Name+l.Key))
	}
	return cmp.Or(strings.Join(names, ", "), "the session")
}

// environ returns the variables for the program. Those about the leases have one line
// per lease. If exec takes a lease, the program keeps a session that it would share
// without exec, because that session may hold what the program needs.
func (h *hold) environ() (env []string) {
	if len(h.leases) == 0 || os.Getenv("LEASEHOLD_SESSION") == "" {
		env = append(h.cfg.place, "LEASEHOLD_SESSION="+h.link.hello.Handle)
	}
	if len(h.leases) == 0 {
		return env
	}
	var keys, tokens []string
	for _, l := range h.leases {
		keys = append(keys, l.Name+l.Key)
		tokens = append(tokens, strconv.FormatUint(l.Token, 10))
	}
	return append(env, "LEASEHOLD_LEASE="+strings.Join(keys, "\n"), "LEASEHOLD_FENCE="+strings.Join(tokens, "\n"))
}

// now reads a clock that runs while the machine sleeps. The clock of package
// time stops during sleep, and would show a lease as held that was lost long
// ago. Compare the results only with each other.
func now() time.Time { return time.Unix(0, int64(running())) }

// running is replaced in tests.
var running = clock.Running
