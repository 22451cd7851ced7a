package registry

import (
	"fmt"

	"github.com/leasehold/leasehold/registry/filekey"
)

// A Requirement is a lease that a write needs. The token identifies the grant.
type Requirement struct {
	Scope string
	Key   string
	Token uint64
}

// Requirement returns the requirement that the lease on key still has the
// token.
func (r *Registry) Requirement(key string, token uint64) Requirement {
	return Requirement{r.scope, key, token}
}

// A Fence is what must be true in the transaction of a write. The zero Fence
// requires nothing.
type Fence struct {
	Leases []Requirement // at most MaxRequirements
	Strict bool          // refuse if a lease is past its deadline
}

// MaxRequirements is how many leases one write may need.
const MaxRequirements = 16

// Check refuses a write with a [StaleError] unless for every requirement its
// lease, or a lease that covers it, is held with the token. A lease past its
// deadline that nobody else has taken still belongs to its holder, unless the
// fence is strict.
func (f Fence) Check(tx Tx) error {
	if len(f.Leases) > MaxRequirements {
		return &LimitError{Which: "leases that one write requires", Max: MaxRequirements, TooLarge: true}
	}
	for _, need := range f.Leases {
		s := need.Standing(tx)
		if !s.Current || f.Strict && !s.Held {
			return &StaleError{Requirement: need, TokenStanding: s}
		}
	}
	return nil
}

// A TokenStanding says whether a token is still valid.
type TokenStanding struct {
	Current bool  // the grant with this token has not ended
	Held    bool  // a lease covers the key and is not past its deadline
	Lease   Lease // with its Times; set if Held or Current

	Reserved *Reservation // for whom the key, or a directory above it, is kept if nobody holds it; nil: for nobody
}

// Standing reports whether the token is still valid.
func (need Requirement) Standing(tx Tx) (s TokenStanding) {
	for row := range near(tx, leasePrefix, need.Scope, need.Key) {
		var l Lease
		if !l.read(row) {
			continue
		}
		if !filekey.Covers(l.Key, need.Key) {
			break // it is below the key
		}
		current, held := l.Token == need.Token, !l.lapsed && !l.past(tx.Now())
		if current || held && !s.Held {
			s = TokenStanding{Current: current, Held: held, Lease: l.Told(tx)}
		}
		if current {
			break
		}
	}
	if s.Held || s.Current {
		return s
	}
	for row := range near(tx, waitPrefix, need.Scope, need.Key) {
		if kept, ok := reservation(tx, row); ok && filekey.Covers(kept.Key, need.Key) {
			s.Reserved = &kept
			break
		}
	}
	return s
}

// A StaleError refuses a write whose holder has lost a required lease, or whose
// lease is past its deadline under a strict [Fence]. Nothing was changed.
type StaleError struct {
	Requirement
	TokenStanding
}

func (e *StaleError) Error() string {
	what := fmt.Sprintf("token %d of lease %q is stale", e.Token, e.Key)
	switch {
	case e.Current:
		return fmt.Sprintf("lease %q with token %d is past its deadline: renew it before you write", e.Key, e.Token)
	case e.Held:
		held := HeldError{Lease: e.Lease, Asked: e.Key}
		return fmt.Sprintf("%s; %s; its token is %d: write nothing, acquire the lease again first", what, held.Error(), e.Lease.Token)
	default:
		return what + "; nobody holds it now: acquire it again before you write"
	}
}
