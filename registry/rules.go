package registry

import (
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Cause says why a lease ended.
type Cause string

const (
	Released     Cause = "released"
	Expired      Cause = "expired"
	SessionEnded Cause = "session ended"
	Cancelled    Cause = "request cancelled"
	Adopted      Cause = "adopted by another session of this actor"
)

// errWaiting says that a call has a place in line; it never leaves the package.
var errWaiting = errors.New("waiting")

// A call is one request on its way.
type call struct {
	Request
	scope   string
	id      uuid.UUID // of the call
	leaseID uuid.UUID // of the lease it would be granted
}

// acquire is the main rule. It grants, gives back what the session has, refuses,
// or takes a place in line (errWaiting).
func (c *Core) acquire(tx Tx, call *call) (Grant, error) {
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
func (c *Core) grantCall(tx Tx, call *call) (Grant, error) {
	if w, ok := waiterByTicket(tx, call.Holder.Actor, call.Ticket); ok && w.Scope == call.scope && w.Key == call.Key {
		w.remove(tx)
	}
	if n := count(tx, call.scope); n >= uint64(c.opts.MaxLeasesPerScope) {
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
		KeepAlive: req.KeepAlive, RequestID: req.RequestID, remaining: req.TTL,
	}
	row := leaseRow(l, now)
	tx.Put(row)
	if id != uuid.Nil {
		tx.Touch(engine.Row{Key: idKey(l.ID), Value: row.Key})
		setCount(tx, scope, count(tx, scope)+1)
	}
	if req.RequestID != "" {
		putRequest(tx, l, time.Time{})
	}
	return l
}

// reenter gives a session its own lease again, extended if that is longer.
func (c *Core) reenter(tx Tx, l Lease, call *call) Grant {
	l.KeepAlive = l.KeepAlive || call.KeepAlive
	l.shared = true
	l = extend(tx, l, call.TTL, l.Holder.Session)
	return Grant{Lease: l, Reentrant: true}
}

// extend moves the deadline to ttl from now if that is later, for session,
// which is another one where the lease is adopted. It writes to the disk only
// what a restart could not do without: a new owner, a longer ttl, or more
// remaining time than the last checkpoint says.
func extend(tx Tx, l Lease, ttl time.Duration, session uuid.UUID) Lease {
	now := tx.Now()
	durable := session != l.Holder.Session
	l.Holder.Session = session
	if to := now.Add(ttl); to.After(l.Deadline) {
		l.Deadline = to
		durable = durable || ttl > l.remaining
		l.TTL = max(l.TTL, ttl)
		l.remaining = max(l.remaining, ttl)
	}
	if durable {
		tx.Put(leaseRow(l, now))
	} else {
		tx.Touch(leaseRow(l, now))
	}
	return l
}

// repeat answers a request_id that was used before.
func (c *Core) repeat(tx Tx, call *call) (g Grant, repeated bool, err error) {
	if call.RequestID == "" {
		return Grant{}, false, nil
	}
	row, ok := tx.Get(requestKey(call.Holder.Session, call.RequestID))
	if !ok {
		return Grant{}, false, nil
	}
	was := decodeJSON[request](row)
	if was.Scope != call.scope || was.Key != call.Key || was.TTL != call.TTL || was.KeepAlive != call.KeepAlive {
		return Grant{}, true, ErrRequestIDReused
	}
	l, ok := leaseByID(tx, was.Lease)
	if !ok || l.Holder.Session != call.Holder.Session || l.expired(tx.Now()) && c.awaited(tx, l) {
		return Grant{}, true, c.lost(tx, call.Holder, was.Lease, Lost{Scope: was.Scope, Key: was.Key, LeaseID: was.Lease, Reason: string(Released), At: tx.Now()})
	}
	l.shared = true
	tx.Touch(leaseRow(l, tx.Now()))
	return Grant{Lease: l}, true, nil
}

// putRequest remembers which lease answered a request; until is when that may
// be forgotten, never while the lease lives.
func putRequest(tx Tx, l Lease, until time.Time) {
	key := requestKey(l.Holder.Session, l.RequestID)
	was := request{Scope: l.Scope, Key: l.Key, TTL: l.TTL, KeepAlive: l.KeepAlive, Lease: l.ID}
	if row, ok := tx.Get(key); ok {
		was = decodeJSON[request](row) // the parameters asked for, whatever the lease has become
	}
	tx.Put(engine.Row{Key: key, Value: encodeJSON(was), Owner: l.Holder.Session, Due: until})
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

// lost is the refusal of an id that is not held: a LostError if the actor held
// it, else otherwise if that says anything, else ErrNotHolder.
func (c *Core) lost(tx Tx, caller Holder, id uuid.UUID, otherwise Lost) error {
	if row, ok := tx.Get(lostKey(caller.Actor, id)); ok {
		return &LostError{decodeJSON[Lost](row)}
	}
	if otherwise.Reason != "" {
		return &LostError{otherwise}
	}
	return ErrNotHolder
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

// free ends a lease and hands its key over. It is the only way a lease ends.
func (c *Core) free(tx Tx, l Lease, cause Cause) {
	tx.Delete(leaseKey(l.Scope, l.Key))
	if l.ID != uuid.Nil {
		tx.Delete(idKey(l.ID))
		setCount(tx, l.Scope, count(tx, l.Scope)-1)
	}
	c.forgetRequest(tx, l)
	next := ""
	if freed, ok := c.freed[l.Scope]; ok {
		freed(tx, l, cause)
	} else {
		next = c.handOver(tx, l.Scope, l.Key)
	}
	if cause != Released && cause != Cancelled {
		putLost(tx, l, cause, next)
	}
}

// handOver grants a key just freed to the first in line that is still there,
// and returns its path. Places of those who are gone are removed on the way.
func (c *Core) handOver(tx Tx, scope, key string) (path string) {
	var next Lease
	for w := range waiters(tx, scope, key) {
		switch {
		case w.parked(): // keeps its place, see the package doc
		case !c.grantable(tx, w):
			w.remove(tx)
		case path == "":
			w.remove(tx)
			path = w.Holder.Path
			next = c.grant(tx, scope, Request{
				Key: key, Holder: w.Holder, TTL: w.TTL, RequestID: w.RequestID, KeepAlive: w.KeepAlive,
			}, w.LeaseID)
		case w.Holder.Session == next.Holder.Session:
			// Another call of the session that holds it now: re-entry.
			w.remove(tx)
			next.shared = true
			next = extend(tx, next, w.TTL, next.Holder.Session)
		}
	}
	return path
}

func (c *Core) forgetRequest(tx Tx, l Lease) {
	if l.RequestID != "" {
		putRequest(tx, l, tx.Now().Add(keepRequest))
	}
}

func putLost(tx Tx, l Lease, cause Cause, next string) {
	lost := Lost{
		Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token, Session: l.Holder.Session,
		Reason: string(cause), At: tx.Now(), SupersededBy: next,
		Told: cause == SessionEnded, // there is nobody to tell; another session learns by its lease_id
	}
	lost.put(tx, l.Holder.Actor)
	if !lost.Told {
		tx.Put(engine.Row{Key: newsKey(lost.Session), Value: string(lost.LeaseID[:]), Owner: lost.Session})
	}
}

func contention(tx Tx, l Lease) *HeldError {
	return &HeldError{
		Scope: l.Scope, Key: l.Key, Holder: l.Holder,
		ExpiresIn: l.ExpiresIn(tx.Now()), Waiters: lineLength(tx, waitKeys(l.Scope, l.Key)),
	}
}

// EndSession takes back everything the session holds and waits for, and
// forgets its requests. It is part of the transaction that ends the session.
func (c *Core) EndSession(tx Tx, session uuid.UUID) {
	// Its places go first, so that nothing is handed over to it.
	var leases []Lease
	for row := range tx.Owned(session) {
		switch {
		case strings.HasPrefix(row.Key, leasePrefix):
			leases = append(leases, mustLease(row))
		case strings.HasPrefix(row.Key, waitPrefix), strings.HasPrefix(row.Key, ticketPrefix):
			tx.Delete(row.Key)
		}
	}
	for _, l := range leases {
		c.free(tx, l, SessionEnded)
	}
	for row := range tx.Owned(session) {
		if strings.HasPrefix(row.Key, requestPrefix) || strings.HasPrefix(row.Key, newsPrefix) {
			tx.Delete(row.Key)
		}
	}
}

// Load counts what the session holds, and what it waits for.
func (c *Core) Load(tx Tx, session uuid.UUID) (held, waiting int) {
	for row := range tx.Owned(session) {
		switch {
		case strings.HasPrefix(row.Key, leasePrefix):
			held++
		case strings.HasPrefix(row.Key, waitPrefix):
			waiting++
		}
	}
	return held, waiting
}

func (c *Core) drop(tx Tx, scope string) {
	for row := range tx.Scan(waitPrefix + scope + "\x00") {
		decodeJSON[waiter](row).remove(tx)
	}
	for row := range tx.Scan(leaseKey(scope, "")) {
		c.free(tx, mustLease(row), SessionEnded)
	}
	tx.Delete(countKey(scope))
}

// Tend does what a due row of this package wants: expire, extend or checkpoint
// a lease, give up a parked place, forget. It reports false for a row of
// another package.
func (c *Core) Tend(tx Tx, row engine.Row) bool {
	switch {
	case strings.HasPrefix(row.Key, leasePrefix):
		c.tendLease(tx, mustLease(row))
	case strings.HasPrefix(row.Key, waitPrefix):
		decodeJSON[waiter](row).remove(tx)
	case strings.HasPrefix(row.Key, requestPrefix), strings.HasPrefix(row.Key, lostPrefix):
		tx.Delete(row.Key)
	default:
		return false
	}
	return true
}

func (c *Core) tendLease(tx Tx, l Lease) {
	now := tx.Now()
	switch {
	case l.KeepAlive && c.opts.Present(l.Holder.Session):
		extend(tx, l, l.TTL, l.Holder.Session)
	case l.expired(now):
		c.free(tx, l, Expired)
	case l.TTL > longTTL:
		l.remaining = l.ExpiresIn(now)
		tx.Put(leaseRow(l, now))
	default:
		tx.Touch(leaseRow(l, now)) // a keep_alive lease whose session is away: at its deadline
	}
}

// Untold returns the losses that the session has not been told of. It costs one
// look-up where there are none, which is nearly always.
func (c *Core) Untold(tx Tx, holder Holder) (news []Lost) {
	if _, ok := tx.Get(newsKey(holder.Session)); !ok {
		return nil
	}
	for row := range tx.Scan(lostKeys(holder.Actor)) {
		if l := decodeJSON[Lost](row); l.Session == holder.Session && !l.Told {
			news = append(news, l)
		}
	}
	return news
}

// MarkTold notes that the session has been told of losses.
func (c *Core) MarkTold(tx Tx, holder Holder, news []Lost) {
	for _, l := range news {
		l.Told = true
		l.put(tx, holder.Actor)
	}
	if len(c.Untold(tx, holder)) == 0 {
		tx.Delete(newsKey(holder.Session))
	}
}

// NewsKey is the key of a row that changes when the session loses a lease.
func NewsKey(session uuid.UUID) string { return newsKey(session) }
