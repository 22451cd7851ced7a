package registry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Check proves that the rows of this package agree with one another and with
// its rules. It reports every disagreement it finds.
func (c *Core) Check(tx Tx) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("registry: "+format, args...)) }

	last, reserved := tokens(tx)
	if last > reserved {
		fault("token %d issued beyond the %d reserved", last, reserved)
	}
	up, _ := uptimeNow(tx)
	counts := make(map[string]uint64)
	seen := make(map[uint64]string)
	for row := range tx.Scan(leasePrefix) {
		l, ok := leaseOf(row)
		if !ok {
			fault("row %q is not a lease", row.Key)
			continue
		}
		if l.ID != uuid.Nil {
			counts[l.Scope]++
		}
		if other, ok := seen[l.Token]; ok {
			fault("token %d is on %q and %q", l.Token, other, row.Key)
		}
		seen[l.Token] = row.Key
		if l.Token > last {
			fault("lease %q has token %d, and only %d were issued", row.Key, l.Token, last)
		}
		if ref, ok := tx.Get(idKey(l.ID)); l.ID != uuid.Nil && (!ok || ref.Value != row.Key) {
			fault("lease %q is not found by its id", row.Key)
		}
		if row.Due.IsZero() || row.Due.After(l.Deadline) {
			fault("lease %q is due at %v, after its deadline %v", row.Key, row.Due, l.Deadline)
		}
		if l.long() && l.endsAt(up) > l.end+lag {
			fault("lease %q ends at %v, and a restart would end it %v earlier", row.Key, l.Deadline, l.endsAt(up)-l.end-lag)
		}
		if !c.opts.SessionOpen(tx, l.Holder.Session) {
			fault("lease %q is held by session %s, which has ended", row.Key, l.Holder.Session)
		}
	}
	for row := range tx.Scan(idPrefix) {
		if _, ok := tx.Get(row.Value); !ok {
			fault("id %x is of no lease", row.Key)
		}
	}
	for row := range tx.Scan(countPrefix) {
		if scope := strings.TrimPrefix(row.Key, countPrefix); count(tx, scope) != counts[scope] {
			fault("scope %q counts %d leases and has %d", scope, count(tx, scope), counts[scope])
		}
	}
	c.checkLines(tx, fault)
	return errors.Join(faults...)
}

func (c *Core) checkLines(tx Tx, fault func(string, ...any)) {
	places := 0
	for row := range tx.Scan(waitPrefix) {
		places++
		w := must(row, decodeWaiter)
		if w.rowKey() != row.Key || w.Holder.Session != row.Owner {
			fault("place %q says it is %q", row.Key, w.rowKey())
		}
		if ref, ok := tx.Get(ticketKey(w.Holder.Actor, w.Ticket)); !ok || ref.Value != row.Key {
			fault("place %q is not found by its ticket", row.Key)
		}
		if w.parked() == row.Due.IsZero() {
			fault("place %q: parked %v, due %v", row.Key, w.parked(), row.Due)
		}
		if _, held := tx.Get(leaseKey(w.Scope, w.Key)); !held && c.grantable(tx, w) {
			fault("place %q waits for a lease that is free", row.Key)
		}
	}
	tickets := 0
	for range tx.Scan(ticketPrefix) {
		tickets++
	}
	if tickets != places {
		fault("%d tickets for %d places", tickets, places)
	}
}

var _ Tx = engine.Tx(nil)
