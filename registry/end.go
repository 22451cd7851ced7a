package registry

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
)

// A Cause says why a lease ended.
type Cause string

const (
	Released      Cause = "released"
	Expired       Cause = "expired"
	SessionEnded  Cause = "session ended"
	PartyEnded    Cause = "sub-agent ended"
	Cancelled     Cause = "request cancelled"
	Adopted       Cause = "adopted by another session of this actor"
	Transferred   Cause = "transferred, as you offered"
	AdoptedWithin Cause = "adopted by another sub-agent of this session"
	passedOn      Cause = "passed on within its client"
)

// told reports whether the holder is to be told of a lease that ended so.
func (c Cause) told() bool {
	return c != Released && c != Cancelled && c != PartyEnded && c != passedOn
}

// free ends a lease, or a reservation, and hands its key over.
func (c *Core) free(tx Tx, l Lease, cause Cause) {
	c.remove(tx, l, cause)
	if freed, ok := c.freed[l.Scope]; ok {
		freed(tx, l, cause)
		return
	}
	want := Want{Scope: l.Scope, Key: l.Key}
	if l.Reserved && cause == Expired { // whoever waits comes before those who are away
		c.serve(tx, want, c.asks)
	}
	c.serve(tx, want, c.live)
}

// remove is what every end of a lease or a reservation does before its key is handed
// over.
func (c *Core) remove(tx Tx, l Lease, cause Cause) {
	tx.Delete(l.row)
	if l.ID != uuid.Nil {
		tx.Delete(idKey(l.ID))
		forgetAlike(tx, l.Scope, l.Key)
	}
	if l.counted() {
		addCounts(tx, &l, -1)
	}
	l.forgetNotices(tx)
	switch {
	case l.RequestID == "":
	case cause == Cancelled:
		l.requested().Forget(tx) // a grant that was taken back does not count
	default:
		l.requested().Expire(tx, keepRequest)
	}
	if cause.told() && !l.lapsed && !l.Reserved { // of a lapsed one its holder was told then
		putLost(tx, &l, cause)
	}
	c.recordEnd(tx, &l, cause)
}

// lapse ends a lease that nobody else wants: its key is free, and its holder, who
// is told, may renew it until somebody takes the key.
func (c *Core) lapse(tx Tx, l Lease) {
	if l.ID == uuid.Nil || !putLost(tx, &l, Expired) {
		c.free(tx, l, Expired)
		return
	}
	addCounts(tx, &l, -1)
	c.recordEnd(tx, &l, Expired)
	l.forgetNotices(tx)
	l.lapsed = true
	l.put(tx)
}

// forgetNotices takes back what is told of a lease while it is held.
func (l *Lease) forgetNotices(tx Tx) {
	l.withdrawOffer(tx)
	if l.awaited {
		forgetNotice(tx, wantedKey(l.Holder.Actor, l.ID))
		l.awaited = false
	}
}

// end removes the row of a lease or of a place, which ends so. It reports false for
// another row.
func (c *Core) end(tx Tx, row engine.Row, cause Cause) bool {
	var l Lease
	var w waiter
	switch lease := strings.HasPrefix(row.Key, leasePrefix); {
	case !lease && !strings.HasPrefix(row.Key, waitPrefix):
		return false
	case lease && l.read(row):
		c.free(tx, l, cause)
	case !lease && w.read(row):
		c.leave(tx, w)
	default:
		tx.Delete(row.Key) // it cannot be read
	}
	return true
}

// EndSession takes back what the session holds and waits for, and leaves what it was
// not told of to the next one of its actor: at most limit rows. It reports whether
// that was all. The caller has made sure that the session counts as ended, and goes
// on in other transactions if there is more.
func (c *Core) EndSession(tx Tx, session uuid.UUID, limit int) (done bool) {
	for row := range tx.Owned(session) {
		if limit--; limit < 0 {
			return false
		}
		switch {
		case c.end(tx, row, SessionEnded):
		case strings.HasPrefix(row.Key, lostPrefix):
			c.leaveNotice(tx, row)
		case strings.HasPrefix(row.Key, call.Prefix), strings.HasPrefix(row.Key, awaitPrefix):
			tx.Delete(row.Key)
		default:
			limit++ // another package's
		}
		if tx.Spent() {
			return false
		}
	}
	return true
}

// partyBatch is how much of a party one transaction ends.
const partyBatch = 256

// EndParty releases what a party of the session holds, and gives up its places.
func (c *Core) EndParty(ctx context.Context, h Holder) (err error) {
	for done := false; !done && err == nil; {
		err = c.update(engine.Needed(ctx), h, func(tx Tx) error {
			n := 0
			for row := range tx.Owned(h.Session) {
				var l Lease
				var w waiter
				lease := strings.HasPrefix(row.Key, leasePrefix) && l.read(row) && l.Holder.same(h)
				if !lease && !(strings.HasPrefix(row.Key, waitPrefix) && w.read(row) && w.Holder.same(h)) {
					continue
				}
				c.end(tx, row, PartyEnded)
				if n++; n == partyBatch || tx.Spent() {
					return nil
				}
			}
			done = true
			return nil
		})
	}
	return err
}

// Drop removes leases of a scope that ends and the places in its lines, at most
// limit, and reports whether that was all.
func (r *Registry) Drop(tx Tx, limit int) (done bool) {
	for _, prefix := range []string{waitPrefix, leasePrefix} {
		for row := range tx.Scan(prefix + r.scope + "\x00") {
			if limit--; limit < 0 {
				return false
			}
			r.core.end(tx, row, SessionEnded)
			if tx.Spent() {
				return false
			}
		}
	}
	tx.Delete(scopeCount(r.scope))
	return true
}

// Tend does what a due row of this package wants: expire or extend a lease, give
// up a parked place, forget a loss or an answer. It reports false for a row of
// another package.
func (c *Core) Tend(tx Tx, row engine.Row) bool {
	switch {
	case strings.HasPrefix(row.Key, leasePrefix):
		c.tendLease(tx, row)
	case strings.HasPrefix(row.Key, waitPrefix):
		c.end(tx, row, Expired)
	case strings.HasPrefix(row.Key, lostPrefix):
		forgetNotice(tx, row.Key)
	default:
		return call.Tend(tx, row)
	}
	return true
}

func (c *Core) tendLease(tx Tx, row engine.Row) {
	var l Lease
	if !l.read(row) { // whoever asks for its key is told; it falls due no more
		row.Due = row.Due.AddDate(100, 0, 0)
		tx.Touch(row)
		return
	}
	switch {
	case l.lapsed:
		c.free(tx, l, Expired)
	case l.KeepAlive && c.opts.Present(l.Holder.Session):
		c.extend(tx, l, l.TTL, l.Holder)
	case !l.expired(tx.Now()):
		l.touch(tx) // a keep_alive lease whose session is away: at its deadline
	case l.Reserved || c.wanted(tx, &l):
		c.free(tx, l, Expired)
	default:
		c.lapse(tx, l)
	}
}
