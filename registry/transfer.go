package registry

import (
	"context"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
)

// transferring is the kind of the answer of a Transfer.
const transferring call.Kind = "transfer"

// Transfer offers a lease of the caller's actor to another actor. Only Actor
// and Path of the result of to are used; a nil to withdraws the offer. The
// holder keeps the lease until the other actor accepts it by acquiring the key.
// The lease then has a new token, and waiters keep their places behind it. If a
// call of the other actor already waits in line with nothing else in its way,
// it accepts at once. The offer is void when the lease ends, passes its
// deadline or is adopted, and with [Core.WithdrawOffers].
func (c *Core) Transfer(ctx context.Context, caller Holder, id uuid.UUID, to func(Tx, Lease) (Holder, error)) (accepted bool, err error) {
	asked := call.Of(ctx)
	return accepted, c.update(engine.Needed(ctx), caller, func(tx Tx) error {
		answer, answered, err := asked.Answered(tx, transferring)
		if answered || err != nil {
			accepted = answer != ""
			return err
		}
		if accepted, err = c.transfer(tx, caller, id, to); err != nil {
			return err
		}
		answer = ""
		if accepted {
			answer = "accepted"
		}
		asked.Record(tx, transferring, answer, 0)
		return nil
	})
}

func (c *Core) transfer(tx Tx, caller Holder, id uuid.UUID, find func(Tx, Lease) (Holder, error)) (accepted bool, err error) {
	l, err := c.leaseOf(tx, caller, id)
	if err != nil {
		return false, err
	}
	var to Holder
	if find != nil {
		if to, err = find(tx, l); err != nil {
			return false, err
		}
	}
	if to.Actor == caller.Actor {
		return false, &ArgumentError{"to", "must be another actor; a session of your own makes the lease its own with lease_renew"}
	}
	if l.Offer.Actor == to.Actor {
		return false, nil
	}
	l.withdrawOffer(tx)
	l.Offer = Holder{Actor: to.Actor, Path: to.Path}
	c.recordLease(tx, &l, event.Event{Kind: event.LeaseOffered, By: to.Path})
	l.put(tx)
	if !l.offered() {
		return false, nil
	}
	tx.Touch(l.offerRow())
	c.settle(tx, l.Offer, c.live)
	if _, held := leaseByID(tx, l.ID); !held {
		return true, nil
	}
	n := Notice{Kind: Offered, Scope: l.Scope, Key: l.Key, LeaseID: l.ID, Token: l.Token, at: tx.Now()}
	n.raise(tx, to.Actor, tx.Put)
	return false, nil
}

// offersNear returns the offered leases on a key, or on keys that overlap with
// it. It costs a look at each of these, however many leases are below a directory.
func offersNear(tx Tx, scope, key string) (offers []Lease) {
	for offer := range near(tx, offerPrefix, scope, key) {
		if l, ok := offeredAt(tx, offer); ok {
			offers = append(offers, l)
		}
	}
	return offers
}

// WithdrawOffers withdraws up to limit of the offers to an actor, which has ended and
// accepts none. It reports whether that was all.
func (c *Core) WithdrawOffers(tx Tx, actor uuid.UUID, limit int) (done bool) {
	for offer := range tx.Owned(actor, offerPrefix) {
		if l, ok := offeredAt(tx, offer); ok {
			if limit--; limit < 0 {
				return false
			}
			l.withdrawOffer(tx)
			c.recordLease(tx, &l, event.Event{Kind: event.LeaseOffered})
			l.put(tx)
		}
	}
	return true
}

// offeredAt returns the lease of an offerRow.
func offeredAt(tx Tx, offer engine.Row) (l Lease, ok bool) {
	row, _ := tx.Get(leasePrefix + strings.TrimPrefix(offer.Key, offerPrefix))
	return l, l.read(row)
}

// offerRow returns the row by which the lease is found while it is offered. It is owned
// by the actor that may accept it.
func (l *Lease) offerRow() engine.Row {
	return engine.Row{Key: offerPrefix + strings.TrimPrefix(l.row, leasePrefix), Owner: l.Offer.Actor}
}

func (l *Lease) offered() bool { return l.Offer.Actor != uuid.Nil }

// offeredTo reports whether an actor can accept the lease now.
func (l *Lease) offeredTo(actor uuid.UUID, now time.Time) bool {
	return l.offered() && l.Offer.Actor == actor && !l.past(now)
}

// gives reports whether a party that asks for a key can get it from the lease's
// holder: the lease is on exactly this key, and offered to the party's actor.
func (l *Lease) gives(h Holder, want Want, now time.Time) bool {
	return l.Scope == want.Scope && l.Key == want.Key && l.offeredTo(h.Actor, now)
}

// withdrawOffer removes the offer of a lease, and reports whether there was
// one. The caller writes the lease.
func (l *Lease) withdrawOffer(tx Tx) bool {
	if !l.offered() {
		return false
	}
	forgetNotice(tx, offerKey(l.Offer.Actor, l.ID))
	tx.Delete(l.offerRow().Key)
	l.Offer = Holder{}
	return true
}
