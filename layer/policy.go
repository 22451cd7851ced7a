package layer

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
)

// An access is a level of access to an entry. Each level includes those before
// it.
type access int

const (
	nothing     access = iota // not even to know that the entry exists
	read                      // includes waiting for it
	overridable               // write if the caller says that it overrides the owner
	write                     // includes deleting
)

// rights is one row of the table.
type rights struct {
	lead   access // of the layer
	owner  access // the member whose name is in the path
	member access // any other member
	reader access // the parent of the lead, and the operator
}

// policy is the whole access table of the contract. Only /peer has an owner.
var policy = map[string]rights{
	kvstore.Ref:    {lead: write, member: read, reader: read},
	kvstore.Peer:   {lead: overridable, owner: write, member: nothing, reader: read},
	kvstore.Shared: {lead: write, member: write, reader: read},
	kvstore.Leases: {lead: read, member: read, reader: read},
}

// A Member is the role of a caller in one layer. The zero Member has no access.
type Member struct {
	ID   uuid.UUID
	Name string // in this layer, see CheckName
	Path string // names below the root joined by →

	Lead     bool // it leads this layer
	ReadOnly bool // it is not a member, and may read what the lead reads
}

// access looks up the access of m under /root/. If root is /peer/, peer is the
// name in the path.
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

// may returns a [ForbiddenError] unless the table allows m the access want to
// p.
func (m Member) may(want access, p kvstore.Path) error {
	if m.access(p.Root(), p.Peer()) >= want {
		return nil
	}
	return forbidden(m, want, p.Root(), p.Peer(), p.String())
}

// sees reports whether m may know that p exists.
func (m Member) sees(p kvstore.Path) bool { return m.access(p.Root(), p.Peer()) >= read }
