package registry

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry/filekey"
)

// A place is kept waiting by a lease, or by an earlier place, that overlaps with
// one of its keys. Code that ends one of these calls handOver. A
// place can also become ready because its own party gets a lease. Code that
// gives a party a lease therefore calls settle.

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
				c.grantPlace(tx, &w, nil, nil)
			}
		case !c.give(tx, &w, keeps):
			c.warn(tx, &w)
			told = true
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
		switch {
		case !ok:
		case c.needless(tx, &w):
			c.leave(tx, w)
		case keeps(tx, &w):
			c.give(tx, &w, keeps)
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

// needless reports whether a place's party already has all that it waits for,
// or shares a key that it waits for exclusively.
func (c *Core) needless(tx Tx, w *waiter) bool {
	own, _ := c.owned(tx, w)
	shares := func(l Lease) bool { return l.Shared && slices.Contains(w.wants, Want{l.Scope, l.Key, false}) }
	return len(own) == len(w.wants) || slices.ContainsFunc(own, shares)
}

// give gives a place its keys, unless something keeps it from one of them. If
// its party is between two calls, they are reserved for it. Lapsed leases that
// are in the way can no longer be renewed. Neither can the party's own, because
// it gets a new lease.
func (c *Core) give(tx Tx, w *waiter, keeps turn) bool {
	switch clear := c.clear(tx, w, keeps); {
	case !clear && w.reserved(): // an adopted lease, or a place before it whose call is back
		c.unreserve(tx, w)
		return false
	case !clear:
		return false
	case w.reserved():
		return true
	}
	for _, want := range w.wants {
		for row := range near(tx, leasePrefix, want.Scope, want.Key) {
			if l := (Lease{}); l.read(row) && l.lapsed && (l.Key == want.Key && l.Holder.same(w.Holder) || l.conflicts(w.Holder, want)) {
				c.remove(tx, l, Expired)
			}
		}
	}
	if w.parked() {
		w.reservedTo = tx.Now().Add(ReserveTime)
		if w.until.Before(w.reservedTo) {
			w.reservedTo = w.until
		}
		w.put(tx.Touch)
	} else {
		own, offers := c.owned(tx, w)
		c.grantPlace(tx, w, own, offers)
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

// grantPlace grants a place's keys to the call that waits there.
func (c *Core) grantPlace(tx Tx, w *waiter, own, offers []Lease) {
	w.remove(tx)
	list := c.grantAll(tx, w.wants, own, offers, &Request{
		Holder: w.Holder, TTL: w.ttl, RequestID: w.requestID, KeepAlive: w.keepAlive, Reason: w.reason, since: w.Since,
	}, w.call, event.LeaseHandedOver)
	c.tell(tx, w.asker, list)
}

// owned returns the leases that a place's party has on its keys, and the leases
// on the other keys that its actor is offered.
func (c *Core) owned(tx Tx, w *waiter) (own, offers []Lease) {
	for _, want := range w.wants {
		var mine bool
		var offered []Lease
		for row := range holders(tx, want.Scope, want.Key) {
			var l Lease
			switch ok := l.read(row) && l.held(); {
			case ok && l.Holder.same(w.Holder):
				mine = true
				own = append(own, l)
			case ok && l.gives(w.Holder, want, tx.Now()):
				offered = append(offered, l)
			}
		}
		if !mine {
			offers = append(offers, offered...)
		}
	}
	return own, offers
}
