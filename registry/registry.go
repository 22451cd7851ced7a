package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Registry is the [Core] bound to one scope.
type Registry struct {
	core  *Core
	scope string
}

// A Request asks for a lease.
type Request struct {
	Key       string // 1 to MaxKey bytes, printable, compared exactly
	Holder    Holder
	TTL       time.Duration // MinTTL to MaxTTL; zero: DefaultTTL
	Wait      time.Duration // at most MaxWait; zero: answer at once
	Ticket    uuid.UUID     // of an earlier wait; zero: none
	RequestID string        // makes the request idempotent; "": it is not
	KeepAlive bool
}

// A Grant answers a request.
type Grant struct {
	Lease
	Reentrant bool // the session held it already
}

// Scope is the scope that r is bound to.
func (r *Registry) Scope() string { return r.scope }

// Acquire grants the key, or refuses with a [HeldError], or after a wait with
// a [WaitError]. A call whose ctx ends has no lease: one granted in that
// instant is given back before Acquire returns.
func (r *Registry) Acquire(ctx context.Context, req Request) (Grant, error) {
	req.TTL = cmp.Or(req.TTL, DefaultTTL)
	if err := req.check(); err != nil {
		return Grant{}, err
	}
	c := r.core
	call := ask{Request: req, scope: r.scope, id: uuid.New(), leaseID: uuid.New()}
	if req.Wait == 0 {
		g, err := r.attempt(ctx, &call)
		if err == nil && ctx.Err() != nil {
			return Grant{}, r.withdraw(ctx, &call)
		}
		return g, err
	}

	if call.Ticket == uuid.Nil {
		call.Ticket = uuid.New()
	}
	// The watch stands before the first look, so a hand-over between the
	// look and the wait is not missed. The call is known as asking before it
	// has a place, so no hand-over can find the place and not the caller.
	watch := c.eng.Watch(ticketKey(req.Holder.Actor, call.Ticket))
	defer watch.Stop()
	defer c.Answering(ctx, call.id)()
	timeout := time.NewTimer(req.Wait)
	defer timeout.Stop()

	g, err := r.attempt(ctx, &call)
	for errors.Is(err, errWaiting) {
		select {
		case <-watch.C:
			g, err = r.look(ctx, &call, false)
		case <-timeout.C:
			g, err = r.look(ctx, &call, true)
		case <-ctx.Done():
			return Grant{}, r.withdraw(ctx, &call)
		}
	}
	if ctx.Err() != nil {
		return Grant{}, r.withdraw(ctx, &call)
	}
	return g, err
}

func (r *Registry) attempt(ctx context.Context, call *ask) (g Grant, err error) {
	err = r.core.update(ctx, func(tx Tx) (refusal error) {
		g, refusal = r.core.acquire(tx, call)
		return refusal
	})
	return g, err
}

// look reads what a wake-up or the end of the wait has brought.
func (r *Registry) look(ctx context.Context, call *ask, last bool) (g Grant, err error) {
	err = r.core.update(ctx, func(tx Tx) (refusal error) {
		g, refusal = r.core.look(tx, call, last)
		return refusal
	})
	return g, err
}

// withdraw undoes the call of a caller that is gone, whatever has come of it.
func (r *Registry) withdraw(ctx context.Context, call *ask) error {
	err := r.core.update(context.WithoutCancel(ctx), func(tx Tx) error {
		r.core.withdraw(tx, call)
		return nil
	})
	return cmp.Or(err, context.Cause(ctx))
}

func (req *Request) check() error {
	if err := checkKey(req.Key); err != nil {
		return err
	}
	if err := checkTTL(req.TTL); err != nil {
		return err
	}
	if req.Wait < 0 || req.Wait > MaxWait {
		return &ArgumentError{"wait_secs", fmt.Sprintf("must be from 0 to %d", MaxWait/time.Second)}
	}
	if len(req.RequestID) > MaxRequestID {
		return &ArgumentError{"request_id", fmt.Sprintf("must be at most %d bytes", MaxRequestID)}
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return &ArgumentError{"key", fmt.Sprintf("must be from 1 to %d bytes", MaxKey)}
	}
	if !utf8.ValidString(key) {
		return &ArgumentError{"key", "must be valid UTF-8"}
	}
	for _, c := range key {
		if !unicode.IsPrint(c) {
			return &ArgumentError{"key", fmt.Sprintf("must be printable, and holds %U", c)}
		}
	}
	return nil
}

// Get returns the lease on key.
func (r *Registry) Get(tx Tx, key string) (Lease, bool) { return getLease(tx, r.scope, key) }

// KeyOf gives the key of a lease of the scope whose row this is, if it is one.
func (r *Registry) KeyOf(row engine.Row) (key string, ok bool) {
	return strings.CutPrefix(row.Key, leaseKey(r.scope, ""))
}

// Grant gives a free key to a holder, for a scope that decides for itself who
// is next (see [Core.OnFreed]). The lease has no id: whoever knows its token
// and is its actor answers for it. Nobody counts such leases but their scope.
func (r *Registry) Grant(tx Tx, key string, h Holder, ttl time.Duration) Lease {
	return r.core.grant(tx, r.scope, Request{Key: key, Holder: h, TTL: ttl}, uuid.Nil)
}

// Extend moves a lease's deadline to ttl from now if that is later, for
// session, which may be another one of its actor.
func (r *Registry) Extend(tx Tx, l Lease, ttl time.Duration, session uuid.UUID) Lease {
	return extend(tx, l, ttl, session)
}

// Free ends a lease.
func (r *Registry) Free(tx Tx, l Lease, cause Cause) { r.core.free(tx, l, cause) }

// A Standing is one lease of a listing and who waits for it, first in line
// first.
type Standing struct {
	Lease
	Waiters []Waiting
}

// A Waiting is one place in a line.
type Waiting struct {
	Holder Holder
	Since  time.Time
	Parked bool // had its answer, keeps its place until it asks again
}

// Standing returns the lease on key and who waits for it.
func (r *Registry) Standing(tx Tx, key string) (Standing, bool) {
	l, ok := getLease(tx, r.scope, key)
	if !ok {
		return Standing{}, false
	}
	return standing(tx, l), true
}

// List returns the leases whose key starts with prefix, in key order.
func (r *Registry) List(tx Tx, prefix string) []Standing {
	var list []Standing
	for row := range tx.Scan(leaseKey(r.scope, prefix)) {
		list = append(list, standing(tx, mustLease(row)))
	}
	return list
}

func standing(tx Tx, l Lease) Standing {
	s := Standing{Lease: l}
	for w := range waiters(tx, l.Scope, l.Key) {
		s.Waiters = append(s.Waiters, Waiting{w.Holder, w.Since, w.parked()})
	}
	return s
}

// Drop removes every lease and every place in line of the scope, for a scope
// that ends. Who waits finds its session's or its own end.
func (r *Registry) Drop(tx Tx) { r.core.drop(tx, r.scope) }
