package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// LeaseOptions say which lease to take. The zero value is an exclusive lease of
// the run with a TTL of 30 s.
type LeaseOptions struct {
	TTL    time.Duration // how long it lasts without a renewal, which comes at a third of it; 1 s to a day; 0: 30 s
	Layer  bool          // in the caller's layer, not in the run
	Shared bool          // other holders may share it
	Reason string        // shown to those who are refused

	// Jeopardy is called when a renewal fails, with the time until the lease's
	// context ends.
	Jeopardy func(left time.Duration, err error)
}

const defaultTTL = 30 * time.Second

// A Lease is held until it is released or lost.
type Lease struct {
	*hold
	id, scope, key string
}

// Acquire takes a lease; it waits in line until ctx ends. After Acquire has
// returned, the end of ctx does not end the lease. The goroutines that share a
// client exclude one another, too, also from keys that overlap (file:src/** and
// file:src/a.go), and even from a shared lease: to them it is as if the lease were
// not shared. So a goroutine that holds one must not wait for the other.
func (c *Client) Acquire(ctx context.Context, key string, o LeaseOptions) (*Lease, error) {
	end, err := c.turns.take(ctx, newTurn(key, o.Layer))
	if err != nil {
		return nil, err
	}
	for ticket := ""; ; {
		l, err := c.acquire(ctx, key, maxWait, ticket, o, end)
		refusal, ok := errors.AsType[*Error](err)
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, ErrLost): // lost before it could be used
			ticket = ""
		case ok && refusal.Code == "WAIT_TIMEOUT":
			ticket = ticketOf(refusal)
		default:
			end()
			return nil, err
		}
		if ctx.Err() != nil {
			end()
			return nil, context.Cause(ctx)
		}
	}
}

// TryAcquire takes a lease if it is free. Otherwise it returns an [*Error] with
// the code LEASE_HELD, which says who holds it.
func (c *Client) TryAcquire(ctx context.Context, key string, o LeaseOptions) (*Lease, error) {
	end, ok := c.turns.tryTake(newTurn(key, o.Layer))
	if !ok {
		return nil, &Error{Status: http.StatusConflict, Code: "LEASE_HELD", Message: fmt.Sprintf("another call of this client holds %q or a key that overlaps, or asks for it", key)}
	}
	l, err := c.acquire(ctx, key, 0, "", o, end)
	if err != nil {
		end()
	}
	return l, err
}

// maxWait is how long one call waits in line, or for a task.
const maxWait = 30 * time.Second

// acquire asks the server once, in the caller's turn for the key, which lasts as long as
// the lease that is granted.
func (c *Client) acquire(ctx context.Context, key string, wait time.Duration, ticket string, o LeaseOptions, end func()) (*Lease, error) {
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	in := map[string]any{"ttl_secs": o.TTL.Seconds(), "wait_secs": wait.Seconds()}
	path, name := "/leases", "key"
	if o.Layer {
		path, name = "/layer/leases", "name"
	}
	in[name] = key
	if ticket != "" {
		in["ticket"] = ticket
	}
	if o.Shared {
		in["mode"] = "shared"
	}
	if o.Reason != "" {
		in["reason"] = o.Reason
	}
	var granted struct {
		LeaseID string `json:"lease_id"`
		Name    string
		Key     string
		Scope   string
		Token   uint64

		Reentrant bool
	}
	body, err := arguments(in)
	if err != nil {
		return nil, err
	}
	c.expect(1)
	defer c.expect(-1)
	sent := c.clock.Running() // taken before the request, because the first of several sends may have been granted
	asked := request{method: http.MethodPost, path: path, body: body, wait: wait}
	switch err := c.do(ctx, &asked, &granted); {
	case CodeOf(err) == "LEASE_LOST": // between the first request, whose answer was lost, and the next
		return nil, lossBecause(err.Error())
	case err != nil:
		return nil, err
	}
	if granted.Reentrant {
		// In this turn nobody holds it. It is left over from an earlier turn,
		// whose release may still be on its way, or whose holder may not know
		// yet that it is over. It must get another token.
		if err := c.giveBack(ctx, granted.LeaseID); err != nil {
			return nil, err
		}
		return c.acquire(ctx, key, wait, "", o, end)
	}
	l := &Lease{id: granted.LeaseID, scope: granted.Scope, key: granted.Name + granted.Key}
	l.hold = &hold{
		c: c, what: fmt.Sprintf("lease %q", l.key), token: granted.Token, session: asked.session, ttl: o.TTL, jeopardy: o.Jeopardy,
		renew: func(ctx context.Context, timeout time.Duration) error {
			r := &request{method: http.MethodPost, path: "/leases/" + l.id + "/renew", body: encode(map[string]any{"ttl_secs": o.TTL.Seconds()})}
			return c.tryIn(ctx, r, timeout, l.session)
		},
	}
	if err := l.begin(ctx, sent, end); err != nil {
		if !errors.Is(err, ErrLost) {
			c.giveBackLater(l.id) // the caller's ctx may have ended
		}
		return nil, err
	}
	c.log.Debug("acquired", "what", l.what, "token", l.token)
	return l, nil
}

func ticketOf(refusal *Error) string {
	var waited struct{ Ticket string }
	decode(refusal.Object, &waited)
	return waited.Ticket
}

// Context returns a context that ends when the lease is released, lost or past
// its local deadline; [context.Cause] says which. Work under the lease should
// use it.
func (l *Lease) Context() context.Context { return l.ctx }

// Token returns the fencing token, which is greater than that of every earlier
// grant of the key. A resource that remembers the greatest token it has seen
// can refuse late writes of earlier holders.
func (l *Lease) Token() uint64 { return l.token }

// Key returns the key of the lease.
func (l *Lease) Key() string { return l.key }

// Left returns how long the lease is certain to be held if no further renewal
// succeeds.
func (l *Lease) Left() time.Duration {
	if l.check() != nil {
		return 0
	}
	return l.left()
}

// A Gate makes a write depend on a lease: the write is done only if the lease
// still has this token. As JSON it is an element of require_leases.
type Gate struct {
	Scope string `json:"scope"` // run or layer
	Key   string `json:"key"`
	Token uint64 `json:"token"`
}

// Gate returns the gate of the lease. Call it immediately before each write. It
// returns an error if the lease is not held or its local deadline has passed,
// by a clock that runs while the machine sleeps.
func (l *Lease) Gate() (Gate, error) {
	if err := l.check(); err != nil {
		return Gate{}, err
	}
	return Gate{l.scope, l.key, l.token}, nil
}

// Release ends the lease's context and then releases the lease. The error is an
// [ErrLost] if the lease was lost before, and nil if it was released before.
// After any other error the lease may still be held, for its TTL at most.
func (l *Lease) Release(ctx context.Context) error {
	if !l.leave(ErrReleased) {
		if cause := context.Cause(l.ctx); !errors.Is(cause, ErrReleased) {
			return cause
		}
		return nil
	}
	defer l.over()
	return l.c.giveBack(ctx, l.id)
}

func (c *Client) giveBack(ctx context.Context, id string) error {
	return c.do(ctx, &request{method: http.MethodDelete, path: "/leases/" + id}, nil)
}

// giveBackLater gives a lease back without the caller, unless Close does.
func (c *Client) giveBackLater(id string) {
	c.later(func() { _ = c.giveBack(c.ctx, id) }) // its TTL is the second net
}
