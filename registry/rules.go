package registry

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// errWaiting says that a call has a place in line; it never leaves the package.
var errWaiting = errors.New("waiting")

// An ask is one request on its way.
type ask struct {
	Request
	scope   string
	id      uuid.UUID // of the call
	leaseID uuid.UUID // of the lease it would be granted
}

// acquire is the main rule. It grants, gives back what the session has, refuses,
// or takes a place in line (errWaiting).
func (c *Core) acquire(tx Tx, call *ask) (Grant, error) {
	if !c.opts.SessionOpen(tx, call.Holder.Session) {
		return Grant{}, ErrSessionEnded
	}
	if g, repeated, err := c.repeat(tx, call); repeated {
		return g, err
	}
	held, ok := c.current(tx, call.scope, call.Key, call.Holder.Session)
	switch {
	case !ok:
		return c.grantCall(tx, call)
	case held.Holder.Session == call.Holder.Session:
		return c.reenter(tx, held, call), nil
	case call.Wait == 0:
		return Grant{}, contention(tx, held)
	default:
		return c.stand(tx, call)
	}
}

// current returns the lease that stands on a key as session sees it. One past
// its deadline is expired on the way, unless it is session's own and nobody
// waits for it.
func (c *Core) current(tx Tx, scope, key string, session uuid.UUID) (Lease, bool) {
	l, ok := getLease(tx, scope, key)
	if ok && l.expired(tx.Now()) && (l.Holder.Session != session || c.awaited(tx, l)) {
		c.free(tx, l, Expired)
		l, ok = getLease(tx, scope, key)
	}
	return l, ok
}

// awaited reports whether somebody waits for l who could be granted it.
func (c *Core) awaited(tx Tx, l Lease) bool {
	for w := range waiters(tx, l.Scope, l.Key) {
		if c.grantable(tx, w) {
			return true
		}
	}
	return false
}

// grantable is asked in the transaction that grants: a place whose session has
// ended, or whose call is gone or has had its answer, is passed over.
func (c *Core) grantable(tx Tx, w waiter) bool {
	return !w.parked() && c.Asking(w.Call) && c.opts.SessionOpen(tx, w.Holder.Session)
}

// grantCall grants a free key to the call in hand.
func (c *Core) grantCall(tx Tx, call *ask) (Grant, error) {
	if call.Ticket != uuid.Nil { // it waits, or did
		if w, ok := waiterByTicket(tx, call.Holder.Actor, call.Ticket); ok && w.Scope == call.scope && w.Key == call.Key {
			w.remove(tx)
		}
	}
	if count(tx, call.scope) >= uint64(c.opts.MaxLeasesPerScope) {
		return Grant{}, &LimitError{"leases in this scope", int64(c.opts.MaxLeasesPerScope)}
	}
	return Grant{Lease: c.grant(tx, call.scope, call.Request, call.leaseID)}, nil
}

// grant writes a new lease. Its deadline runs from this transaction.
func (c *Core) grant(tx Tx, scope string, req Request, id uuid.UUID) Lease {
	now := tx.Now()
	l := Lease{
		Scope: scope, Key: req.Key, ID: id, Token: nextToken(tx), Holder: req.Holder,
		AcquiredAt: now, Deadline: now.Add(req.TTL), TTL: req.TTL,
		KeepAlive: req.KeepAlive, RequestID: req.RequestID,
		row: leaseKey(scope, req.Key),
	}
	l.put(tx)
	if id != uuid.Nil {
		tx.Touch(engine.Row{Key: idKey(l.ID), Value: l.row})
		addCount(tx, scope, 1)
	}
	if req.RequestID != "" {
		putRequest(tx, l, time.Time{})
	}
	return l
}

// reenter gives a session its own lease again, extended if that is longer.
func (c *Core) reenter(tx Tx, l Lease, call *ask) Grant {
	l.KeepAlive = l.KeepAlive || call.KeepAlive
	l.shared = true
	l = extend(tx, l, call.TTL, l.Holder.Session)
	return Grant{Lease: l, Reentrant: true}
}

// extend moves the deadline to ttl from now if that is later, for session,
// which is another one where the lease is adopted. It writes to the disk only
// what a restart could not do without: a new owner, a longer ttl, or an end that
// is much later than the one that is stored.
func extend(tx Tx, l Lease, ttl time.Duration, session uuid.UUID) Lease {
	now := tx.Now()
	durable := session != l.Holder.Session
	l.Holder.Session = session
	if to := now.Add(ttl); to.After(l.Deadline) {
		l.Deadline = to
		durable = durable || ttl > l.TTL
		l.TTL = max(l.TTL, ttl)
		if !durable && l.long() {
			u, _ := uptimeNow(tx)
			durable = l.endsAt(u) > l.end+lag
		}
	}
	if durable {
		l.put(tx)
	} else {
		tx.Touch(leaseRow(&l, now))
	}
	return l
}

// renew extends a lease for whoever knows its id and is the holder's actor.
func (c *Core) renew(tx Tx, caller Holder, id uuid.UUID, ttl time.Duration) (Lease, error) {
	if !c.opts.SessionOpen(tx, caller.Session) {
		return Lease{}, ErrSessionEnded
	}
	l, ok := leaseByID(tx, id)
	if ok && l.Holder.Actor != caller.Actor {
		return Lease{}, ErrNotHolder
	}
	if ok && l.expired(tx.Now()) && c.awaited(tx, l) {
		c.free(tx, l, Expired)
		ok = false
	}
	if !ok {
		return Lease{}, c.lost(tx, caller, id, Lost{})
	}
	if ttl == 0 {
		ttl = l.TTL
	}
	if l.Holder.Session != caller.Session {
		c.forgetRequest(tx, l)
		putLost(tx, l, Adopted, l.Holder.Path)
	}
	return extend(tx, l, ttl, caller.Session), nil
}

// release frees a lease for whoever knows its id and is the holder's actor.
func (c *Core) release(tx Tx, caller Holder, id uuid.UUID) (released bool, why string, err error) {
	l, ok := leaseByID(tx, id)
	if !ok {
		var lost *LostError
		if errors.As(c.lost(tx, caller, id, Lost{}), &lost) {
			return false, lost.Reason, nil
		}
		return false, "not held", nil
	}
	if l.Holder.Actor != caller.Actor {
		return false, "", ErrNotHolder
	}
	c.free(tx, l, Released)
	return true, "", nil
}

func contention(tx Tx, l Lease) *HeldError {
	return &HeldError{
		Scope: l.Scope, Key: l.Key, Holder: l.Holder,
		ExpiresIn: l.ExpiresIn(tx.Now()), Waiters: lineLength(tx, waitKeys(l.Scope, l.Key)),
	}
}
