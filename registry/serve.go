package registry

import (
	"cmp"
	"slices"

	"github.com/leasehold/leasehold/engine/event"
)

// Whatever keeps a place waiting is a lease, a reservation, or a place before it that
// overlaps with one of its keys, and whoever ends one of them calls handOver. Only its
// own party's leases can let a place go on that nothing has made room for: whoever gives
// a party a lease calls settle.

// handOver gives what has become free of some keys, or of what overlaps with them, to
// those who wait.
func (c *Core) handOver(tx Tx, wants ...Want) {
	for _, want := range wants {
		c.serve(tx, want, c.live)
	}
}

// serve goes through the lines for a key once: first in line first, each of them gets all
// of its keys, or nothing while somebody keeps it from one. To serve one place lets nobody
// else in: it keeps out as a lease whom it kept out before. Those in the way are told of
// who is left, at least of the first.
func (c *Core) serve(tx Tx, key Want, keeps turn) {
	stopped, told := false, false
	for w := range waiters(tx, key.Scope, key.Key) {
		switch {
		case !keeps(tx, &w):
			continue
		case stopped:
			c.warn(tx, &w)
			return
		case !c.give(tx, &w, keeps):
			c.warn(tx, &w)
			told = true
		}
		if w.Shared || !Covers(w.Key, key.Key) {
			continue
		}
		// It keeps out all behind it but its own party, and those who are offered a key.
		c.settle(tx, w.Holder, keeps)
		for _, l := range offersNear(tx, key.Scope, key.Key) {
			c.settle(tx, l.Offer, keeps)
		}
		if stopped = true; told {
			return
		}
	}
}

// settle brings the places of a party up to date with what it has, or of an actor, if the
// holder is of no session, with what it is offered. The party leaves the lines in which
// it waits for nothing but what it has, or for a key alone that it shares: it may have
// asked for some keys, and got them with others. A call that waits there is answered as
// one that asks now.
func (c *Core) settle(tx Tx, h Holder, keeps turn) {
	if count(tx, waitsCount(h.Actor)) == 0 {
		return
	}
	for _, w := range placesOf(tx, h) {
		w, ok := placeOf(tx, w.Holder, w.wants) // to serve the one before may have changed it
		switch {
		case !ok:
		case c.needless(tx, &w):
			c.leave(tx, w)
		case keeps(tx, &w):
			c.give(tx, &w, keeps)
		}
	}
}

// placesOf gives the places of a party, or of an actor, in the order of their numbers.
func placesOf(tx Tx, h Holder) (places []waiter) {
	for ref := range tx.Scan(placesKey(h)) {
		if row, ok := tx.Get(ref.Value); ok {
			if w := (waiter{}); w.read(row) {
				places = append(places, w)
			}
		}
	}
	slices.SortFunc(places, func(a, b waiter) int { return cmp.Compare(a.seq, b.seq) })
	return places
}

// needless reports whether a place's party has all that it waits for, or shares what it
// wants alone.
func (c *Core) needless(tx Tx, w *waiter) bool {
	own, _ := c.owned(tx, w)
	shares := func(l Lease) bool { return l.Shared && slices.Contains(w.wants, Want{l.Scope, l.Key, false}) }
	return len(own) == len(w.wants) || slices.ContainsFunc(own, shares)
}

// give gives a place its keys, unless something keeps it from one of them. For a party
// that is between two calls they are reserved. What had lapsed of them cannot be renewed
// any more, also what was the party's own: it has a new lease.
func (c *Core) give(tx Tx, w *waiter, keeps turn) bool {
	if !c.clear(tx, w, keeps) {
		return false
	}
	for _, want := range w.wants {
		for row := range near(tx, leasePrefix, want.Scope, want.Key) {
			if l := (Lease{}); l.read(row) && l.lapsed && (l.Key == want.Key && l.Holder.same(w.Holder) || l.conflicts(w.Holder, want)) {
				c.remove(tx, l, Expired)
			}
		}
	}
	if w.parked() {
		c.reserve(tx, *w)
	} else {
		c.fill(tx, w)
	}
	return true
}

// fill grants its keys to a call that waits in a place.
func (c *Core) fill(tx Tx, w *waiter) {
	own, offers := c.owned(tx, w)
	w.remove(tx)
	c.grantAll(tx, w.wants, own, offers, &Request{
		Holder: w.Holder, TTL: w.ttl, RequestID: w.requestID, KeepAlive: w.keepAlive, Reason: w.reason, since: w.Since,
	}, w.call, event.LeaseHandedOver)
}

// owned gives the leases that a place's party has on its keys, and those on its other
// keys that its actor is offered.
func (c *Core) owned(tx Tx, w *waiter) (own, offers []Lease) {
	for _, want := range w.wants {
		var mine bool
		var offered []Lease
		for row := range holders(tx, want.Scope, want.Key) {
			var l Lease
			switch ok := l.read(row) && !l.Reserved && !l.lapsed; {
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

// reserve keeps free keys for a party that is between two calls.
func (c *Core) reserve(tx Tx, w waiter) {
	w.spent = true
	w.put(tx, tx.Touch)
	now := tx.Now()
	own, _ := c.owned(tx, &w)
	for _, want := range w.wants {
		if slices.ContainsFunc(own, func(l Lease) bool { return l.Scope == want.Scope && l.Key == want.Key }) {
			continue
		}
		l := Lease{
			Scope: want.Scope, Key: want.Key, Holder: w.Holder, Reserved: true, Shared: want.Shared,
			Acquired: now, TTL: ReserveTime, Deadline: now.Add(ReserveTime), row: rowOf(want, w.seq),
		}
		l.touch(tx)
	}
}
