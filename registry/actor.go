package registry

import (
	"strings"

	"github.com/google/uuid"
)

// Stands are the leases that a session holds, claims on tasks among them, and
// those it waits for, as others hold them.
func (c *Core) Stands(tx Tx, session uuid.UUID) (held, awaited []Lease) {
	for row := range tx.Owned(session) {
		switch {
		case strings.HasPrefix(row.Key, leasePrefix):
			held = append(held, mustLease(row))
		case strings.HasPrefix(row.Key, waitPrefix):
			w := must(row, decodeWaiter)
			if row, ok := tx.Get(leaseKey(w.Scope, w.Key)); ok {
				awaited = append(awaited, mustLease(row))
			}
		}
	}
	return held, awaited
}

// LostBy returns what an actor has lost in the last hour while the session
// that held it was there.
func (c *Core) LostBy(tx Tx, actor uuid.UUID) (list []Lost) {
	for row := range tx.Scan(lostKeys(actor)) {
		if l := must(row, decodeLost); l.Reason != string(SessionEnded) {
			list = append(list, l)
		}
	}
	return list
}
