package registry

import (
	"fmt"
)

// A Requirement is a lease that a write needs. The token says which grant of it.
type Requirement struct {
	Scope string
	Key   string
	Token uint64
}

// Requirement is that the lease on key is still the one with the token.
func (r *Registry) Requirement(key string, token uint64) Requirement {
	return Requirement{r.scope, key, token}
}

// A Fence is what must be true in the transaction of a write. The zero Fence asks
// for nothing.
type Fence struct {
	Leases []Requirement // at most MaxRequirements
	Strict bool          // none may be past its deadline
}

// MaxRequirements is how many leases one write may need.
const MaxRequirements = 16

// Check refuses a write with a [StaleError] unless every lease that it needs is
// held with its token, or a lease that covers it. A lease past its deadline that nobody else has taken is
// still its holder's, unless the fence is strict.
func (f Fence) Check(tx Tx) error {
	if len(f.Leases) > MaxRequirements {
		return &LimitError{"leases that one write requires", MaxRequirements}
	}
	for _, need := range f.Leases {
		s := need.Standing(tx)
		if !s.Current || f.Strict && !s.Held {
			return &StaleError{Requirement: need, TokenStanding: s}
		}
	}
	return nil
}

// A TokenStanding says what a token is worth now.
type TokenStanding struct {
	Current bool  // the grant has not ended
	Held    bool  // somebody holds the key, before its deadline
	Lease   Lease // told, if Held or Current
}

// Standing says what the token is worth now.
func (need Requirement) Standing(tx Tx) (s TokenStanding) {
	for row := range near(tx, leasePrefix, need.Scope, need.Key) {
		var l Lease
		if !l.read(row) || l.Reserved {
			continue
		}
		if !Covers(l.Key, need.Key) {
			break // it is below the key
		}
		current, held := l.Token == need.Token, !l.lapsed && !l.expired(tx.Now())
		if current || held && !s.Held {
			s = TokenStanding{Current: current, Held: held, Lease: l.Told(tx)}
		}
		if current {
			break
		}
	}
	return s
}

// A StaleError refuses a write whose holder has lost a lease that it needs, or with
// a strict [Fence] is past its deadline. Nothing was changed.
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
		l := &e.Lease
		held := HeldError{Key: e.Key, Holder: l.Holder, ExpiresIn: l.ExpiresIn, KeepAlive: l.KeepAlive, Shared: l.Shared, Reason: l.Reason}
		return fmt.Sprintf("%s; %s; its token is %d: write nothing, acquire the lease again first", what, held.Error(), l.Token)
	default:
		return what + "; nobody holds it now: acquire it again before you write"
	}
}
