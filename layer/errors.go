package layer

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
)

// A ForbiddenError is returned if the access table does not allow something.
// Nothing was read or changed.
type ForbiddenError struct {
	Who  string // path of the caller
	Verb string // "read" or "write"
	Path string // as far as the caller may know it
	Next string // what it can do instead
}

func (e *ForbiddenError) Error() string {
	return fmt.Sprintf("%s may not %s %s: %s", e.Who, e.Verb, e.Path, e.Next)
}

// An UnknownPeerError is returned to a caller that may read every /peer and has
// named a member by an id that is not in this layer.
type UnknownPeerError struct {
	ID uuid.UUID
}

func (e *UnknownPeerError) Error() string {
	return fmt.Sprintf("no member of this layer has the id %s; call actor_list to see who is there", e.ID)
}

// forbidden returns the error for a refused access under /root/ or, there, to
// the entries of peer. It does not depend on whether an entry exists, which m
// may not know.
func forbidden(m Member, want access, root, peer, shown string) *ForbiddenError {
	e := &ForbiddenError{Who: m.Path, Verb: "write", Path: shown}
	if want == read {
		e.Verb = "read"
	}
	switch {
	case m.ID == uuid.Nil:
		e.Who, e.Next = "an unknown caller", "connect as an actor of this layer"
	case root == kvstore.Leases:
		e.Next = "take a lease with lease_acquire, give it back with lease_release"
	case m.ReadOnly:
		e.Next = "you only read this layer, ask its lead to write"
	case root == kvstore.Ref:
		e.Next = "only the lead of the layer writes there, use /shared/ or /peer/self/"
	case m.Lead:
		e.Next = fmt.Sprintf("it belongs to %s, a lead writes there with override: true", peer)
	default:
		e.Next = "it is not yours, use /peer/self/ for your own and /shared/ for what others are to see"
	}
	return e
}
