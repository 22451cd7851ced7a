package registry

import (
	"strings"

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

// free ends a lease and hands its key over. It is the only way a lease ends.
func (c *Core) free(tx Tx, l Lease, cause Cause) {
	tx.Delete(l.row)
	if l.ID != uuid.Nil {
		tx.Delete(idKey(l.ID))
		addCount(tx, l.Scope, -1)
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
	for range tx.Scan(waitKeys(scope, key)) {
		return c.handDown(tx, scope, key)
	}
	return "" // mostly
}

func (c *Core) handDown(tx Tx, scope, key string) (path string) {
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

func (c *Core) drop(tx Tx, scope string) {
	for row := range tx.Scan(waitPrefix + scope + "\x00") {
		must(row, decodeWaiter).remove(tx)
	}
	for row := range tx.Scan(leaseKey(scope, "")) {
		c.free(tx, mustLease(row), SessionEnded)
	}
	tx.Delete(countKey(scope))
}

// Tend does what a due row of this package wants: expire or extend a lease, give
// up a parked place, forget, write the uptime. It reports false for a row of
// another package.
func (c *Core) Tend(tx Tx, row engine.Row) bool {
	switch {
	case strings.HasPrefix(row.Key, leasePrefix):
		c.tendLease(tx, mustLease(row))
	case strings.HasPrefix(row.Key, waitPrefix):
		must(row, decodeWaiter).remove(tx)
	case strings.HasPrefix(row.Key, lostPrefix):
		forgetLost(tx, row)
	case strings.HasPrefix(row.Key, requestPrefix):
		tx.Delete(row.Key)
	case row.Key == uptimeKey:
		beat(tx)
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
	default:
		tx.Touch(leaseRow(&l, now)) // a keep_alive lease whose session is away: at its deadline
	}
}
