package registry

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
)

// A Cause is why a lease ended.
type Cause string

const (
	Released       Cause = "released"
	Expired        Cause = "expired"
	SessionEnded   Cause = "session ended"
	PartyEnded     Cause = "sub-agent ended"
	Cancelled      Cause = "request cancelled"
	Adopted        Cause = "adopted by another session of this actor"
	Transferred    Cause = "transferred, as you offered"
	AdoptedWithin  Cause = "adopted by another sub-agent of this session"
	ReleasedAside  Cause = "released by another session of this actor"
	ReleasedWithin Cause = "released by another sub-agent of this session"
	passedOn       Cause = "passed on within its client"
)

// told reports whether the holder is told of a lease that ended with this
// cause.
func (c Cause) told() bool {
	return c != Released && c != Cancelled && c != PartyEnded && c != passedOn
}

// free ends a lease and hands its key over.
func (c *Core) free(tx Tx, l Lease, cause Cause) {
	c.remove(tx, l, cause)
	if freed, ok := c.freed[l.Scope]; ok {
		freed(tx, l, cause)
		return
	}
	c.handOver(tx, Want{Scope: l.Scope, Key: l.Key})
}

// remove removes a lease and what depends on it. The caller hands its key over.
func (c *Core) remove(tx Tx, l Lease, cause Cause) {
	l.taken(tx)
	tx.Delete(l.row)
	if l.ID != uuid.Nil {
		tx.Delete(idKey(l.ID))
		forgetAlike(tx, l.Scope, l.Key)
	}
	addCounts(tx, &l, -1)
	l.forgetNotices(tx)
	switch {
	case l.RequestID == "":
	case cause == Cancelled:
		l.requested().Forget(tx) // a grant that was taken back does not count
	default:
		l.requested().Expire(tx, keepRequest)
	}
	if cause.told() && l.held() { // the holder of a lapsed lease was told when it lapsed
		putLost(tx, &l, cause)
	}
	c.recordEnd(tx, &l, cause)
}

// taken is called when a party's lease goes to nobody or to another party. A holder on
// another machine survives a power cut. If the state then had the lease again, its
// holder could renew it, and would not learn that another had the key in between.
func (l *Lease) taken(tx Tx) {
	if !l.Holder.Local {
		tx.Sync()
	}
}

// lapse makes the key of a lease free that nobody else wants. Its holder is
// told, and may renew it until somebody takes the key.
func (c *Core) lapse(tx Tx, l Lease) {
	// Without an id nobody can renew it. Beyond MaxUntold its loss is only counted, and its
	// holder does not learn that it can.
	if l.ID == uuid.Nil || newsOf(tx, l.Holder.Actor).untold >= MaxUntold {
		c.free(tx, l, Expired)
		return
	}
	putLost(tx, &l, Expired)
	addCounts(tx, &l, -1)
	c.recordEnd(tx, &l, Expired)
	l.forgetNotices(tx)
	l.lapsed = true
	l.put(tx)
}

// forgetNotices removes the notices that are valid only while the lease is
// held.
func (l *Lease) forgetNotices(tx Tx) {
	l.withdrawOffer(tx)
	if l.awaited {
		forgetNotice(tx, wantedKey(l.Holder.Actor, l.ID))
		l.awaited = false
	}
}

// end ends the lease or the place of a row, with a cause. It reports false for
// a row of another kind.
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
		tx.Delete(row.Key) // unreadable
	}
	return true
}

// EndSession ends the leases and places of a session, and passes the losses
// that it was not told of on to the next session of its actor. It handles at
// most limit rows and reports whether that was all. The caller must already
// have marked the session as ended, and continues in other transactions if
// there is more.
func (c *Core) EndSession(tx Tx, session uuid.UUID, limit int) (done bool) {
	for row := range tx.Owned(session, "") {
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
			limit++ // belongs to another package
		}
		if tx.Spent() {
			return false
		}
	}
	return true
}

// EndParty ends the leases and the places of one party of the session. They are
// found in a snapshot, because the session may hold much more.
func (c *Core) EndParty(ctx context.Context, h Holder) error {
	ctx = engine.Needed(ctx)
	if h.Local {
		ctx = engine.Local(ctx)
	}
	for range 2 { // one of its places may get a lease while the others end
		var its []string
		err := c.eng.Snapshot(ctx, func(tx Tx) error {
			for row := range tx.Owned(h.Session, "") {
				if isOf(row, h) {
					its = append(its, row.Key)
				}
			}
			return nil
		})
		if err != nil || len(its) == 0 {
			return err
		}
		for len(its) > 0 {
			err := c.update(ctx, h, func(tx Tx) error {
				for more := true; more; more = len(its) > 0 && !tx.Spent() {
					if row, ok := tx.Get(its[0]); ok && isOf(row, h) {
						c.end(tx, row, PartyEnded)
					}
					its = its[1:]
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// isOf reports whether a row is a lease or a place of a party.
func isOf(row engine.Row, h Holder) bool {
	var l Lease
	var w waiter
	return strings.HasPrefix(row.Key, leasePrefix) && l.read(row) && l.Holder.same(h) ||
		strings.HasPrefix(row.Key, waitPrefix) && w.read(row) && w.Holder.same(h)
}

// Drop removes the leases of a scope that ends, and the places in its lines: at
// most limit of them. It reports whether that was all.
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

// Tend handles a due row of this package: it ends or extends a lease, gives up
// a parked place or what is reserved for it, or sees to a notice or an answer. It reports false for a row of
// another package.
func (c *Core) Tend(tx Tx, row engine.Row) bool {
	switch {
	case strings.HasPrefix(row.Key, leasePrefix):
		c.tendLease(tx, row)
	case strings.HasPrefix(row.Key, waitPrefix):
		if w := (waiter{}); w.read(row) && w.reserved() {
			c.unreserve(tx, &w)
		} else {
			c.end(tx, row, Expired)
		}
	case strings.HasPrefix(row.Key, lostPrefix):
		c.tendNotice(tx, row)
	default:
		return call.Tend(tx, row)
	}
	return true
}

func (c *Core) tendLease(tx Tx, row engine.Row) {
	var l Lease
	if !l.read(row) { // a call that asks for its key gets the error; the row must not fall due again
		row.Due = row.Due.AddDate(100, 0, 0)
		tx.Touch(row)
		return
	}
	switch {
	case l.lapsed:
		c.free(tx, l, Expired)
	case c.keepsAlive(&l):
		c.extend(tx, l, l.TTL, l.Holder)
	case !l.past(tx.Now()):
		l.touch(tx) // a keep_alive lease of a session that is away, due before its deadline
	case c.wanted(tx, &l):
		c.free(tx, l, Expired)
	default:
		c.lapse(tx, l)
	}
}
