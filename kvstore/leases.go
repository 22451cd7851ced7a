package kvstore

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A LeaseValue is the value of an entry under /leases/. It describes a lease of
// the layer, as every member may see it. The version of the entry is the token
// of the lease; UpdatedAt and UpdatedBy say when and by whom it was acquired.
type LeaseValue struct {
	Holder      LeaseHolder   `json:"holder"`
	Token       uint64        `json:"token"`
	Mode        string        `json:"mode"` // exclusive or shared; if shared, the holder is the first of several
	Reason      string        `json:"reason,omitempty"`
	OfferedTo   string        `json:"offered_to,omitempty"` // path of an actor
	KeepAlive   bool          `json:"keep_alive"`           // extended for as long as its holder is connected
	ExpiresInMS int64         `json:"expires_in_ms"`
	Waiters     []LeaseWaiter `json:"waiters"` // in the order of the line
}

// A LeaseHolder is the holder of a lease.
type LeaseHolder struct {
	ActorID uuid.UUID `json:"actor_id"`
	Path    string    `json:"path"`
	As      string    `json:"as,omitempty"` // its sub-agent that holds it
}

// A LeaseWaiter is a waiter for a lease.
type LeaseWaiter struct {
	LeaseHolder
	WaitingMS int64 `json:"waiting_ms"`
}

// leaseEntry returns the entry of one lease of the layer, or nil.
func leaseEntry(leases *registry.Registry, tx engine.Tx, p Path) *Entry {
	key := strings.TrimPrefix(p.s, "/"+Leases+"/")
	standing, ok := leases.Standing(tx, key)
	if !ok {
		return nil
	}
	e := standingEntry(p, standing)
	return &e
}

func holderOf(h registry.Holder) LeaseHolder { return LeaseHolder{h.Actor, h.Path, h.Party} }

func standingEntry(p Path, s registry.Standing) Entry {
	value := LeaseValue{
		Holder:      holderOf(s.Holder),
		Token:       s.Token,
		Mode:        s.Mode(),
		Reason:      s.Reason,
		OfferedTo:   s.Offer.Path,
		KeepAlive:   s.KeepAlive,
		ExpiresInMS: s.ExpiresIn.Milliseconds(),
		Waiters:     []LeaseWaiter{},
	}
	for _, w := range s.Waiters {
		value.Waiters = append(value.Waiters, LeaseWaiter{holderOf(w.Holder), w.For.Milliseconds()})
	}
	b, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("kvstore: %T: %v", value, err)) // cannot happen: plain data
	}
	return Entry{Path: p, Value: b, Version: s.Token, UpdatedAt: s.AcquiredAt, UpdatedBy: s.Holder.Path}
}
