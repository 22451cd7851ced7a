package layer

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
)

// An access is what somebody may do with an entry. Each includes those before.
type access int

const (
	nothing     access = iota // not even learn that there is one
	read                      // and wait for it
	overridable               // write, where the caller says that it overrides the owner
	write                     // and delete
)

// rights is one line of the table.
type rights struct {
	lead   access // of the layer
	owner  access // whose name is in the path
	member access // another one
	reader access // the parent of the lead, and the operator, looking in
}

// policy is the access table of the contract, and all there is of it. The
// owner is a column of /peer alone.
var policy = map[string]rights{
	kvstore.Ref:    {lead: write, member: read, reader: read},
	kvstore.Peer:   {lead: overridable, owner: write, member: nothing, reader: read},
	kvstore.Shared: {lead: write, member: write, reader: read},
	kvstore.Leases: {lead: read, member: read, reader: read},
}

// A Member is a caller's standing in one layer. The zero Member may nothing.
type Member struct {
	ID   uuid.UUID
	Name string // in this layer, see CheckName
	Path string // names below the root joined by →

	Lead     bool // it leads this layer
	ReadOnly bool // it is no member: it may read what the lead reads
}

// access looks up in the table what m may do under /root/, with the name of
// the peer where that is /peer/.
func (m Member) access(root, peer string) access {
	line := policy[root]
	switch {
	case m.ID == uuid.Nil:
		return nothing
	case m.ReadOnly:
		return line.reader
	case root == kvstore.Peer && peer == m.Name:
		return line.owner
	case m.Lead:
		return line.lead
	default:
		return line.member
	}
}

// may refuses what the table does not allow m to do with p.
func (m Member) may(want access, p kvstore.Path) error {
	if m.access(p.Root(), p.Peer()) >= want {
		return nil
	}
	return forbidden(m, want, p.Root(), p.Peer(), p.String())
}

// sees reports whether m may know of p.
func (m Member) sees(p kvstore.Path) bool { return m.access(p.Root(), p.Peer()) >= read }
