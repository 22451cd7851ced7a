package registry

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/event"
)

// Check proves that the rows of this package agree with one another and with
// its rules. It reports every disagreement it finds.
func (c *Core) Check(tx Tx) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("registry: "+format, args...)) }
	counts := make(map[string]uint64)
	c.checkLeases(tx, counts, fault)
	c.checkLines(tx, counts, fault)
	for row := range tx.Scan(lostPrefix) {
		if l := (Notice{}); !l.read(row) {
			fault("row %q is not a notice", row.Key)
		} else {
			l.check(tx, lostActor(row.Key), counts, fault)
		}
	}
	for row := range tx.Scan(countPrefix) {
		if n := count(tx, row.Key); n != counts[row.Key] {
			fault("%q is %d, and there are %d", row.Key, n, counts[row.Key])
		}
		delete(counts, row.Key)
	}
	for key, n := range counts {
		fault("%q is missing, and there are %d", key, n)
	}
	return errors.Join(faults...)
}

// check holds a notice to an actor against the lease that it is about.
func (n *Notice) check(tx Tx, actor uuid.UUID, counts map[string]uint64, fault func(string, ...any)) {
	if !n.told {
		counts[NewsKey(actor)]++
	}
	l, ok := leaseByID(tx, n.LeaseID)
	switch {
	case n.Kind == Wanted && (!ok || !l.awaited || l.Holder.Actor != actor || l.Holder.Session != n.Session):
		fault("actor %s is told that somebody waits for %q, which it does not hold", actor, n.Key)
	case n.Kind == Offered && (!ok || l.Offer.Actor != actor):
		fault("actor %s is told of an offer of %q, which is not offered to it", actor, n.Key)
	}
}

func (c *Core) checkLeases(tx Tx, counts map[string]uint64, fault func(string, ...any)) {
	numbers := event.NumbersOf(tx)
	last := numbers.Token
	if last > numbers.Reserved {
		fault("token %d issued beyond the %d reserved", last, numbers.Reserved)
	}
	seen := make(map[uint64]string)
	for row := range tx.Scan(leasePrefix) {
		var l Lease
		if !l.read(row) {
			fault("row %q is not a lease", row.Key)
			continue
		}
		if !c.opts.SessionOpen(tx, l.Holder.Session) {
			fault("lease %q is held by session %s, which has ended", row.Key, l.Holder.Session)
		}
		if !l.Shared && !l.lapsed {
			for row := range tx.Scan(shareKeys(l.Scope, l.Key)) {
				if other := (Lease{}); other.read(row) && !other.lapsed {
					fault("lease %q is held alone, and shared in %q", l.row, row.Key)
				}
			}
		}
		if l.lapsed && (l.offered() || l.awaited) {
			fault("lease %q has lapsed, and is offered or waited for", row.Key)
		}
		if l.Reserved {
			if l.Token != 0 || l.ID != uuid.Nil || l.TTL > ReserveTime {
				fault("reservation %q is a lease, too", row.Key)
			}
			continue
		}
		if l.counted() {
			counts[scopeCount(l.Scope)]++
			counts[actorCount(l.Holder.Actor)]++
		}
		if other, ok := seen[l.Token]; ok {
			fault("token %d is on %q and %q", l.Token, other, row.Key)
		}
		seen[l.Token] = row.Key
		if l.Token > last || l.Token == 0 {
			fault("lease %q has token %d, and %d were issued", row.Key, l.Token, last)
		}
		if ref, ok := tx.Get(idKey(l.ID)); l.ID != uuid.Nil && (!ok || ref.Value != row.Key) {
			fault("lease %q is not found by its id", row.Key)
		}
		if row.Due.IsZero() || row.Due.After(l.Deadline) != l.lapsed {
			fault("lease %q is due at %v, its deadline is %v", row.Key, row.Due, l.Deadline)
		}
		if l.long() && l.Deadline.After(l.stored.Add(lag)) {
			fault("lease %q ends at %v, and a restart would end it at %v", row.Key, l.Deadline, l.stored.Add(lag))
		}
	}
	for row := range tx.Scan(idPrefix) {
		if _, ok := tx.Get(row.Value); !ok {
			fault("id %x is of no lease", row.Key)
		}
	}
}

func (c *Core) checkLines(tx Tx, counts map[string]uint64, fault func(string, ...any)) {
	places := 0
	for row := range tx.Scan(waitPrefix) {
		places++
		var w waiter
		if !w.read(row) || w.rowKey() != row.Key {
			fault("row %q is not a place", row.Key)
			continue
		}
		counts[waitsCount(w.Holder.Actor)]++
		if ref, ok := tx.Get(placeKey(w.Holder, w.Scope, w.Key)); !ok || ref.Value != row.Key {
			fault("place %q is not its party's", row.Key)
		}
		if w.parked() == row.Due.IsZero() {
			fault("place %q: parked %v, due %v", row.Key, w.parked(), row.Due)
		}
		for held := range holders(tx, w.Scope, w.Key) {
			if l := (Lease{}); l.read(held) && !l.lapsed && !l.Reserved && l.Holder.same(w.Holder) {
				fault("place %q waits for what its party holds", row.Key)
			}
		}
		for first := range waiters(tx, w.Scope, w.Key) {
			if first.parked() && first.spent {
				continue
			}
			if c.live(tx, &first) && vacant(tx, &first) { // else it is about to leave, and to hand over
				fault("place %q waits for a lease that is free", first.rowKey())
			}
			break
		}
	}
	parties := 0
	for range tx.Scan(placePrefix) {
		parties++
	}
	if parties != places {
		fault("%d parties have %d places", parties, places)
	}
}
