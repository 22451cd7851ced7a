package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/event"
)

// Check verifies that the rows of this package agree with one another and with
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
			if !l.told {
				counts[untoldKey(row.Key)] = 1
			}
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

// check compares a notice to an actor with the lease that it is about.
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
	alike := make(map[string]int)
	for row := range tx.Scan(leasePrefix) {
		var l Lease
		if !l.read(row) {
			fault("row %q is not a lease", row.Key)
			continue
		}
		if by := l.Holder.Session; !c.opts.SessionOpen(tx, by) && !c.opts.SessionEnding(tx, by) {
			fault("lease %q is held by session %s, which has ended", row.Key, l.Holder.Session)
		}
		for row := range near(tx, leasePrefix, l.Scope, l.Key) {
			want := Want{l.Scope, l.Key, l.Shared}
			switch other := (Lease{}); {
			case l.lapsed, row.Key == l.row, !other.read(row):
			case other.keepsOut(l.Holder, want):
				fault("lease %q of %s is held beside %q of %s", l.row, l.Holder.Path, row.Key, other.Holder.Path)
			case other.conflicts(l.Holder, want):
				fault("lease %q is held, and %q can be renewed", l.row, row.Key)
			}
		}
		if _, found := tx.Get(l.offerRow().Key); found != l.offered() {
			fault("lease %q is offered: %t, and is found as such: %t", row.Key, l.offered(), found)
		}
		if l.lapsed && (l.offered() || l.awaited) {
			fault("lease %q has lapsed, and is offered or waited for", row.Key)
		}
		if row, ok := alikeKey(l.Scope, l.Key); ok && l.ID != uuid.Nil {
			alike[row]++
		}
		for _, key := range l.counts() {
			counts[key]++
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
	checkFound(tx, alike, fault)
}

// checkFound compares the rows by which leases are found with the leases. alike
// counts those that are held under each spelling.
func checkFound(tx Tx, alike map[string]int, fault func(string, ...any)) {
	for row := range tx.Scan(offerPrefix) {
		if _, ok := tx.Get(leasePrefix + strings.TrimPrefix(row.Key, offerPrefix)); !ok {
			fault("nobody holds the lease of the offer %q", row.Key)
		}
	}
	for row := range tx.Scan(alikePrefix) {
		scope, rest, _ := strings.Cut(strings.TrimPrefix(row.Key, alikePrefix), "\x00")
		_, key, _ := strings.Cut(rest, "\x00")
		if alike[row.Key] == 0 {
			fault("nobody holds %q of %s, which is found by its spelling", key, scope)
		}
		delete(alike, row.Key)
	}
	for row := range alike {
		fault("%q is not found by its spelling", row)
	}
	for row := range tx.Scan(idPrefix) {
		var l Lease
		if its, ok := tx.Get(row.Value); ok {
			l.read(its)
		}
		if idKey(l.ID) != row.Key {
			fault("id %x is of no lease", row.Key)
		}
	}
}

func (c *Core) checkLines(tx Tx, counts map[string]uint64, fault func(string, ...any)) {
	type partyInLine struct {
		party Holder
		line  string
	}
	seen := make(map[partyInLine]bool)
	places := 0
	for row := range tx.Scan(waitPrefix) {
		places++
		var w waiter
		if !w.read(row) || w.rowKey(w.line()) != row.Key {
			fault("row %q is not a place", row.Key)
			continue
		}
		counts[waitsCount(w.Holder.Actor)]++
		line := lineCount(w.Scope, w.Key)
		if one := (partyInLine{partyOf(w.Holder), line}); !seen[one] {
			seen[one] = true
			counts[line]++
		}
		if ref, ok := tx.Get(placeKey(w.Holder, w.wants)); !ok || ref.Value != w.rowKey(w.wants[0]) {
			fault("place %q is not its party's", row.Key)
		}
		if !w.first() {
			places--
			continue
		}
		for _, want := range w.wants {
			if other, ok := tx.Get(w.rowKey(want)); !ok || other.Due != row.Due {
				fault("place %q is not in the line for %q", row.Key, want.Key)
			}
		}
		if w.parked() == row.Due.IsZero() {
			fault("place %q: parked %v, due %v", row.Key, w.parked(), row.Due)
		}
		if c.sees(tx, &w, c.live).needless(&w) {
			fault("place %q waits for what its party holds", row.Key)
		}
		// A place whose call is gone, or whose session has ended, is about to
		// be removed and its keys handed over.
		keeps := func(_ Tx, p *waiter) bool { return !p.parked() || !p.spent }
		if !w.reserved() && c.live(tx, &w) && c.sees(tx, &w, keeps).clear() {
			fault("place %q of %s waits for %v, and nothing keeps it", row.Key, w.Holder.Path, w.wants)
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
