package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
)

// Renew moves the lease's deadline to ttl from now, if that is later. A zero
// ttl means the lease's present ttl. If another party of the holder's actor
// knows the id, it adopts the lease, so a reconnected client keeps its leases.
// An adopted lease gets a new token, and its former holder is told. The former
// holder can adopt it back once it knows: until it is told, Renew refuses it with a
// [LostError], or a renewal by a timer, or one that is sent again, would take the
// lease back unasked. A call that has adopted a lease and is sent again does not take
// it from a party that has adopted it since.
func (c *Core) Renew(ctx context.Context, caller Holder, id uuid.UUID, ttl time.Duration) (l Lease, err error) {
	if ttl != 0 {
		if err := CheckTTL(ttl); err != nil {
			return Lease{}, err
		}
	}
	return l, c.update(engine.Needed(ctx), caller, func(tx Tx) (refusal error) {
		l, refusal = c.renew(tx, call.Of(ctx), caller, id, ttl)
		return refusal
	})
}

// leaseOf returns a lease of the caller's actor by its id, for a change. A lease
// past its deadline is revived.
func (c *Core) leaseOf(tx Tx, caller Holder, id uuid.UUID) (Lease, error) {
	l, ok := leaseByID(tx, id)
	switch {
	case !c.opts.SessionOpen(tx, caller.Session):
		return Lease{}, ErrSessionEnded
	case ok && l.Holder.Actor != caller.Actor:
		return Lease{}, ErrNotHolder
	case ok && c.expired(tx, &l):
		l, ok = c.revive(tx, l)
	}
	if !ok {
		return Lease{}, c.lost(tx, caller, id, Notice{})
	}
	return l, nil
}

// adopting is the kind of the answer of a Renew that has adopted a lease.
// Renewals by the holder record none, so that they cost no write.
const adopting call.Kind = "adopt"

func (c *Core) renew(tx Tx, asked call.Call, caller Holder, id uuid.UUID, ttl time.Duration) (Lease, error) {
	l, err := c.leaseOf(tx, caller, id)
	if err != nil {
		return Lease{}, err
	}
	ttl = cmp.Or(ttl, l.TTL)
	caller = l.actsFor(caller)
	if !l.Holder.same(caller) {
		_, adopted, err := asked.Answered(tx, adopting)
		switch {
		case err != nil:
			return Lease{}, err
		case adopted: // somebody has adopted it since, or it would be the caller's
			return Lease{}, c.lost(tx, caller, id, Notice{Scope: l.Scope, Key: l.Key, Reason: string(Adopted)})
		case untold(tx, caller, id):
			return Lease{}, c.lost(tx, caller, id, Notice{})
		}
		cause := Adopted
		switch {
		case caller.Session != l.Holder.Session:
		case c.opts.Apart(caller.Session, l.Holder.Party, caller.Party):
			cause = AdoptedWithin
		default:
			cause = passedOn
		}
		l = c.move(tx, l, caller, cause)
		asked.Record(tx, adopting, "", 0)
	}
	return c.extend(tx, l, ttl, caller).Told(tx), nil
}

// actsFor returns the party for which a caller extends a lease. A session acts for
// its parties.
func (l *Lease) actsFor(caller Holder) Holder {
	if caller.Session == l.Holder.Session && caller.Party == "" {
		caller.Party = l.Holder.Party
	}
	return caller
}

// move gives a lease to another party, with a new token. It also moves the
// former holder's overlapping leases that two parties could not hold at once: a
// party may hold both src/** and src/app.ts, and they move together. It ends
// those of them that have lapsed.
func (c *Core) move(tx Tx, l Lease, to Holder, cause Cause) Lease {
	if cause.told() {
		putLost(tx, &l, cause)
	}
	if l.RequestID != "" {
		l.requested().Expire(tx, keepRequest)
		l.RequestID = ""
	}
	l.taken(tx)
	from := l.Holder // of the same actor, or the guest that the new holder takes over from
	addCounts(tx, &l, -1)
	l.forgetNotices(tx)
	l.Holder, l.Token, l.told = to, event.Next(tx), true
	addCounts(tx, &l, 1)
	l.put(tx)
	c.recordLease(tx, &l, event.Event{Kind: event.LeaseAdopted, Cause: string(cause), Reason: l.Reason})
	var beside []Lease
	for row := range near(tx, leasePrefix, l.Scope, l.Key) {
		if other := (Lease{}); other.read(row) && other.Holder.same(from) && other.conflicts(to, Want{l.Scope, l.Key, l.Shared}) {
			beside = append(beside, other)
		}
	}
	for _, other := range beside {
		now, ok := leaseByID(tx, other.ID)
		switch {
		case !ok || !now.Holder.same(from): // one of the others has already moved it
		case now.lapsed: // its holder must not renew it any more
			c.free(tx, now, Expired)
		default:
			c.move(tx, now, to, cause)
		}
	}
	c.settle(tx, to, c.live)
	// Nobody can get it, but the new holder is told who waits, and what was
	// reserved for the former holder on overlapping keys is given up.
	c.handOver(tx, Want{Scope: l.Scope, Key: l.Key})
	now, _ := leaseByID(tx, l.ID)
	return now
}

// revive extends a lease past its deadline by its ttl, unless somebody waits
// for it: then it ends the lease.
func (c *Core) revive(tx Tx, l Lease) (Lease, bool) {
	if c.wanted(tx, &l) {
		c.free(tx, l, Expired)
		return Lease{}, false
	}
	if l.withdrawOffer(tx) {
		l.put(tx)
	}
	return c.extend(tx, l, l.TTL, l.Holder), true
}

// extend moves the deadline to ttl from now, if that is later. The holder may
// change. The write goes to disk only if a restart needs it: for a new party,
// a longer ttl, or a deadline much later than the stored one. A lapsed lease,
// or one that a restart has prolonged, is also written to disk.
func (c *Core) extend(tx Tx, l Lease, ttl time.Duration, holder Holder) Lease {
	durable := !holder.same(l.Holder) || l.lapsed
	l.Holder = holder
	if l.lapsed {
		l.lapsed = false
		addCounts(tx, &l, 1)
		forgetNotice(tx, lostKey(l.Holder.Actor, l.ID))
		c.recordLease(tx, &l, event.Event{Kind: event.LeaseRevived, Reason: l.Reason})
	}
	if to := tx.Now().Add(ttl); to.After(l.Deadline) {
		durable = durable || ttl > l.TTL || l.graced
		l.Deadline, l.TTL, l.graced = to, max(l.TTL, ttl), false
		durable = durable || l.long() && l.Deadline.After(l.stored.Add(lag))
	}
	if durable {
		l.put(tx)
	} else {
		l.touch(tx)
	}
	return l
}

// prolongStep is how many leases Prolong extends in one transaction.
const prolongStep = 100

// Prolong extends those of a party's leases that nobody else wants, each by its
// ttl, and returns the ones that the party still holds. It is for a holder that
// reports now and then that it is alive, but not what it still needs. A lease
// that others wait for is not extended, so they get their turn.
func (c *Core) Prolong(ctx context.Context, h Holder, ids []uuid.UUID) (held []uuid.UUID, err error) {
	for some := range slices.Chunk(ids, prolongStep) {
		had := len(held)
		err := c.update(ctx, h, func(tx Tx) error {
			held = held[:had]
			for _, id := range some {
				l, ok := leaseByID(tx, id)
				if !ok || !l.Holder.same(h) || c.expired(tx, &l) {
					continue
				}
				if held = append(held, id); !c.wanted(tx, &l) {
					c.extend(tx, l, l.TTL, l.Holder)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return held, nil
}

// Pass moves a lease to another party, with a new token. It is for two sessions
// of one client: a lease that one session took for a sub-agent is then held by
// the sub-agent in the other. Waiters keep waiting, and nobody is told of a
// loss. It reports false if from does not hold the lease.
func (c *Core) Pass(ctx context.Context, id uuid.UUID, from, to Holder) (passed bool, err error) {
	return passed, c.update(ctx, to, func(tx Tx) error {
		l, ok := leaseByID(tx, id)
		if passed = ok && l.Holder.same(from) && !c.expired(tx, &l) && c.opts.SessionOpen(tx, to.Session); !passed {
			return nil
		}
		c.move(tx, l, to, passedOn)
		return nil
	})
}

// Release ends the lease and hands its key to the first in line. If the lease
// is no longer held, it reports false and why; that is an answer, not an error.
// If another party of the actor holds the lease, that party is told, unless its own
// session releases the lease for it. A call that has released it says so again if
// it is repeated.
func (c *Core) Release(ctx context.Context, caller Holder, id uuid.UUID) (released bool, why string, err error) {
	err = c.update(engine.Needed(ctx), caller, func(tx Tx) (refusal error) {
		released, why = false, ""
		asked := call.Of(ctx)
		if _, again, err := asked.Answered(tx, releasing); again || err != nil {
			released = again
			return err
		}
		if released, why, refusal = c.release(tx, caller, id); released {
			asked.Record(tx, releasing, "", 0)
		}
		return refusal
	})
	return released, why, err
}

// releasing is the kind of the answer of a Release that has released a lease.
const releasing call.Kind = "release"

func (c *Core) release(tx Tx, caller Holder, id uuid.UUID) (released bool, why string, err error) {
	l, ok := leaseByID(tx, id)
	if !ok {
		if lost, ok := errors.AsType[*LostError](c.lost(tx, caller, id, Notice{})); ok {
			return false, lost.Reason, nil
		}
		return false, "not held", nil
	}
	if l.Holder.Actor != caller.Actor {
		return false, "", ErrNotHolder
	}
	lapsed, cause := l.lapsed, Released
	switch { // another party goes on as if it held the lease
	case l.Holder.Session != caller.Session:
		cause = ReleasedAside
	case !l.Holder.same(l.actsFor(caller)) && c.opts.Apart(caller.Session, l.Holder.Party, caller.Party):
		cause = ReleasedWithin
	}
	c.free(tx, l, cause)
	if lapsed {
		return false, string(Expired), nil
	}
	return true, "", nil
}

// GiveBack ends a lease that a party still holds. It leaves a lease alone that another
// party has adopted.
func (c *Core) GiveBack(ctx context.Context, h Holder, id uuid.UUID) error {
	return c.update(engine.Needed(ctx), h, func(tx Tx) error {
		if l, ok := leaseByID(tx, id); ok && l.Holder.same(h) {
			c.free(tx, l, Released)
		}
		return nil
	})
}

// requested returns the call with a request_id that was granted the lease.
func (l *Lease) requested() call.Call {
	return call.Call{}.Requested(l.Holder.Session, l.RequestID, 0)
}
