package registry

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/leasehold/leasehold/registry/filekey"
)

// A place is kept waiting by a lease, or by an earlier place, that overlaps with
// one of its keys. Code that ends one of these calls handOver. A place can also
// become ready because its own party gets a lease. Code that gives a party a lease
// therefore calls settle.

// handOver serves the lines for keys that have become free, and for keys that
// overlap with them.
func (c *Core) handOver(tx Tx, wants ...Want) {
	for _, want := range wants {
		c.serve(tx, want, c.live)
	}
}

// serve goes through the lines for a key once, in order. Each place gets all of
// its keys, or none if something keeps it from one. Serving a place lets in
// nobody that it kept out, because its lease keeps out the same parties. Those
// that hold what others wait for are told of the waiters that are left, at
// least of the first.
func (c *Core) serve(tx Tx, key Want, keeps turn) {
	stopped, told := false, false
	var share sharers
	for w := range waiters(tx, key.Scope, key.Key) {
		switch {
		case !keeps(tx, &w):
			continue
		case stopped:
			c.warn(tx, &w)
			return
		case share.lets(tx, &w, key):
			if !share.full() {
				share.parties[partyOf(w.Holder)] = true
				c.tell(tx, w.asker, c.award(tx, &w, &view{}))
			}
		default:
			v := view{keeps: keeps, brief: true, left: MaxBelow}
			c.view(tx, &w, &v)
			if !c.give(tx, &w, &v) {
				c.warn(tx, &w)
				told = true
			}
		}
		if w.spent && w.parked() || w.Shared || !filekey.Covers(w.Key, key.Key) {
			continue
		}
		// This place keeps out everyone behind it, except its own party and
		// actors that are offered a key.
		c.settle(tx, w.Holder, keeps)
		for _, l := range offersNear(tx, key.Scope, key.Key) {
			c.settle(tx, l.Offer, keeps)
		}
		if stopped = true; told {
			return
		}
	}
}

// sharers are those who share a key, while its line is served. Many may wait to
// share a key, and each of them would look at all who got it before. So these
// are read once: nothing but shares of the places before is added meanwhile,
// because those keep out everything else.
type sharers struct {
	parties map[Holder]bool // nil: not read yet
	plain   bool            // nothing but leases that are shared is on the key or above it
}

// lets reports whether a place may share the key that is served: it waits for
// nothing else, nothing keeps it from the key, and its party has no lease there.
func (s *sharers) lets(tx Tx, w *waiter, key Want) bool {
	if _, all, _ := filekey.Split(key.Key); all || !w.Shared || w.Key != key.Key || len(w.wants) > 1 || w.parked() {
		return false
	}
	if s.parties == nil {
		s.parties, s.plain = make(map[Holder]bool), true
		for row := range near(tx, leasePrefix, key.Scope, key.Key) {
			var l Lease
			if !l.read(row) || !l.Shared || !l.held() || l.offered() {
				s.plain = false
				break
			}
			s.parties[partyOf(l.Holder)] = true
		}
	}
	return s.plain && !s.parties[partyOf(w.Holder)]
}

// full reports whether as many share the key as may. A place gets nothing then
// until its call asks again, and is refused.
func (s *sharers) full() bool { return len(s.parties) > MaxBelow }

func partyOf(h Holder) Holder { return Holder{Session: h.Session, Party: h.Party} }

// settle updates the places of a party after it got a lease; if the holder has
// no session, those of an actor after it got an offer. A place is removed if
// the party already has all that it waits for, or shares a key that it waits
// for exclusively: it may have asked for some keys, and got them with others. A
// call that waits there is then answered as if it asked now.
func (c *Core) settle(tx Tx, h Holder, keeps turn) {
	if count(tx, waitsCount(h.Actor)) == 0 {
		return
	}
	inOrder := func(a, b waiter) int { return cmp.Compare(a.seq, b.seq) }
	for _, w := range slices.SortedFunc(placesOf(tx, h), inOrder) {
		w, ok := placeOf(tx, w.Holder, w.wants) // serving the previous place may have changed this one
		if !ok {
			continue
		}
		v := c.sees(tx, &w, keeps)
		switch {
		case v.needless(&w):
			c.leave(tx, w)
		case keeps(tx, &w):
			c.give(tx, &w, v)
		}
	}
}

// placesOf yields the places of a party, or of an actor.
func placesOf(tx Tx, h Holder) iter.Seq[waiter] {
	return func(yield func(waiter) bool) {
		for ref := range tx.Scan(placesKey(h)) {
			var w waiter
			if row, ok := tx.Get(ref.Value); ok && w.read(row) && !yield(w) {
				return
			}
		}
	}
}

// give gives a place its keys, unless something keeps it from one of them. If
// its party is between two calls, they are reserved for it. Lapsed leases that
// are in the way can no longer be renewed. Neither can the party's own, because
// it gets a new lease.
func (c *Core) give(tx Tx, w *waiter, v *view) bool {
	switch {
	case !v.clear():
		if w.reserved() { // for a lease that was adopted, or a call that is back in a place before it
			c.unreserve(tx, w)
		}
		return false
	case w.reserved():
		return true
	}
	for _, l := range v.over {
		c.remove(tx, l, Expired)
	}
	if w.parked() {
		w.reservedTo = tx.Now().Add(ReserveTime)
		if w.until.Before(w.reservedTo) {
			w.reservedTo = w.until
		}
		w.put(tx.Touch)
	} else {
		c.tell(tx, w.asker, c.award(tx, w, v))
	}
	return true
}

// unreserve ends the reservation of a place's keys. Calls that wait for them
// come before parked places.
func (c *Core) unreserve(tx Tx, w *waiter) {
	w.spent, w.reservedTo = true, time.Time{}
	w.put(tx.Touch)
	for _, keeps := range []turn{c.asks, c.live} {
		for _, want := range w.wants {
			c.serve(tx, want, keeps)
		}
	}
}
