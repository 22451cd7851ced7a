package registry

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
)

// CallKind is the kind of the answers of calls that were granted a lease.
const CallKind call.Kind = "lease"

// Undo takes back the lease that a call was granted, unless another call was
// told of it, too.
func (c *Core) Undo(tx Tx, a call.Answer) {
	r := record.Read(a.Value)
	id := r.ID()
	if l, ok := leaseByID(tx, id); ok && id != uuid.Nil && !l.shared {
		c.free(tx, l, Cancelled)
	}
}
