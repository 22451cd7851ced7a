package kvstore

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A LeaseValue is the value of an entry under /leases/: a lease of the layer,
// as anybody may see it. The entry's version is the lease's token; it was
// updated when and by whom it was acquired.
type LeaseValue struct {
	Holder      LeaseHolder   `json:"holder"`
	Token       uint64        `json:"token"`
	Mode        string        `json:"mode"` // exclusive, or shared: then this is the first of its holders
	Reason      string        `json:"reason,omitempty"`
	OfferedTo   string        `json:"offered_to,omitempty"` // path of an actor
	ExpiresInMS int64         `json:"expires_in_ms"`
	Waiters     []LeaseWaiter `json:"waiters"` // first in line first
}

// A LeaseHolder is who holds a lease.
type LeaseHolder struct {
	ActorID uuid.UUID `json:"actor_id"`
	Path    string    `json:"path"`
}

// A LeaseWaiter is who waits for one.
type LeaseWaiter struct {
	ActorID   uuid.UUID `json:"actor_id"`
	Path      string    `json:"path"`
	WaitingMS int64     `json:"waiting_ms"`
}

// leaseEntry reads one lease of the layer, or nil.
func leaseEntry(leases *registry.Registry, tx engine.Tx, p Path) *Entry {
	key := strings.TrimPrefix(p.s, "/"+Leases+"/")
	standing, ok := leases.Standing(tx, key)
	if !ok {
		return nil
	}
	e := standingEntry(p, standing)
	return &e
}

func standingEntry(p Path, s registry.Standing) Entry {
	value := LeaseValue{
		Holder:      LeaseHolder{s.Holder.Actor, s.Holder.Path},
		Token:       s.Token,
		Mode:        s.Mode(),
		Reason:      s.Reason,
		OfferedTo:   s.Offer.Path,
		ExpiresInMS: s.ExpiresIn.Milliseconds(),
		Waiters:     []LeaseWaiter{},
	}
	for _, w := range s.Waiters {
		value.Waiters = append(value.Waiters, LeaseWaiter{w.Holder.Actor, w.Holder.Path, w.For.Milliseconds()})
	}
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("kvstore: %T: %v", value, err)) // a plain struct: cannot fail
	}
	return Entry{Path: p, Value: b, Version: s.Token, UpdatedAt: s.AcquiredAt, UpdatedBy: s.Holder.Path}
}
