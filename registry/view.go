package registry

// A view is what a party that asks or waits for keys finds on them, on keys that
// overlap with them, and in line. Whether it is granted the keys, refused or
// kept waiting follows from that.
type view struct {
	keeps turn // which places before it keep it waiting
	asks  bool // it is of a call, which ends what is past its deadline
	all   bool // find all keepers, and not only the first
	brief bool // end at the first keeper: only whether there is one matters
	left  int  // how many leases of others, and places, may be looked at

	own     []Lease  // the party's, on the keys
	mixed   bool     // the party shares a key that it wants for itself
	offers  []Lease  // to its actor, on keys that it does not have
	over    []Lease  // in the way, or its own, and to be ended
	keepers []keeper // leases first
	unread  string   // key of a row in the way that cannot be read
	limit   string   // what was more than may be looked at; "": nothing
}

// A keeper keeps a party from one of its keys. It is the lease of another party,
// or an earlier place in line.
type keeper struct {
	want  Want
	lease *Lease // nil if it is a place
	place *waiter
}

// sees returns the view of a place in line.
func (c *Core) sees(tx Tx, w *waiter, keeps turn) *view {
	v := &view{keeps: keeps, left: MaxBelow}
	c.view(tx, w, v)
	return v
}

// view fills in what a party finds. It does not wait in line for a key that it
// has. Nor does a call for one that its actor is offered: it gets that before
// all who wait. A lease that cannot be read may be anybody's.
func (c *Core) view(tx Tx, w *waiter, v *view) {
	var line []Want
	for _, want := range w.wants {
		own, offers := len(v.own), len(v.offers)
		for row := range near(tx, leasePrefix, want.Scope, want.Key) {
			var l Lease
			readable := l.read(row)
			if len(v.keepers) > 0 && !v.all && (v.brief || l.Key != want.Key) {
				break // its own leases and offers are on the key itself
			}
			its := readable && l.Key == want.Key && l.Holder.same(w.Holder)
			if !its {
				if v.left--; v.left < 0 {
					v.limit = "leases below the directories of a request"
					if l.Key == want.Key {
						v.limit = "leases that share a key of a request"
					}
					break
				}
			}
			mixed := its && l.Shared && !want.Shared
			switch {
			case !readable:
				v.unread = row.Key
				v.keepers = append(v.keepers, keeper{want: want, lease: &Lease{}})
			case (its || l.conflicts(w.Holder, want)) && c.ends(tx, v, &l, its && !mixed):
				v.over = append(v.over, l)
			case mixed:
				v.mixed = true
			case its:
				if len(v.own) == own { // by adoption it may share the key twice
					v.own = append(v.own, l)
				}
			case !w.parked() && l.gives(w.Holder, want, tx.Now()):
				v.offers = append(v.offers, l)
			case l.conflicts(w.Holder, want) && (v.all || len(v.keepers) == 0):
				kept := l
				v.keepers = append(v.keepers, keeper{want: want, lease: &kept})
			}
		}
		if len(v.own) > own {
			v.offers = v.offers[:offers]
		} else if len(v.offers) == offers {
			line = append(line, want)
		}
	}
	if v.limit != "" || len(v.keepers) > 0 && !v.all {
		return
	}
	for _, want := range line {
		for p := range c.placesBefore(tx, w.Holder, want, w.seq-1, v.keeps) { // all, if it has no number yet
			v.keepers = append(v.keepers, keeper{want: want, place: p})
			if v.left--; v.left < 0 || !v.all {
				return
			}
		}
	}
}

// ends reports whether a lease that is in the way, or the party's own, can be
// ended for it. A place gets new leases instead of its party's own that have
// lapsed. A call gets its party's own back, unless somebody else waits for them.
func (c *Core) ends(tx Tx, v *view, l *Lease, its bool) bool {
	switch {
	case !v.asks:
		return l.lapsed
	case !its:
		return c.expired(tx, l)
	}
	own := *l // only this one need be on the heap
	return c.expired(tx, l) && c.wanted(tx, &own)
}

// clear reports whether nothing keeps the party from its keys. One that would
// have to pass too many leases gets nothing in its place until its call asks
// again, and is refused then.
func (v *view) clear() bool { return !v.mixed && len(v.keepers) == 0 && v.limit == "" }

// needless reports whether the party has all that it waits for, or shares a key
// that it waits for exclusively.
func (v *view) needless(w *waiter) bool { return v.mixed || len(v.own) == len(w.wants) }
