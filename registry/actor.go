package registry

import (
	"github.com/google/uuid"
)

// HeldBy returns what an actor holds in scopes, in any session.
func (c *Core) HeldBy(tx Tx, actor uuid.UUID, scopes ...string) (list []Lease) {
	for _, scope := range scopes {
		for row := range tx.Scan(leaseKey(scope, "")) {
			if l := mustLease(row); l.Holder.Actor == actor {
				list = append(list, l)
			}
		}
	}
	return list
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
