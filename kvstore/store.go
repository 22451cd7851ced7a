package kvstore

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// layerLen is the length of a layer's id in keys.
const layerLen = 36

// A Store holds the entries of one layer. It has no state of its own: two
// Stores of one layer are the same store.
type Store struct {
	eng    engine.Engine
	leases *registry.Registry
	limits Limits
	layer  string // id of the layer
	keys   string // prefix of the keys of its entries
}

// New returns the store of a layer. leases is the registry of its /leases/.
func New(eng engine.Engine, leases *registry.Registry, layerID uuid.UUID, limits Limits) *Store {
	id := layerID.String()
	return &Store{eng: eng, leases: leases, limits: limits.withDefaults(), layer: id, keys: entryPrefix + id}
}

// Leases is the registry of the layer's /leases/.
func (s *Store) Leases() *registry.Registry { return s.leases }

// Limits returns the limits of the store, with defaults filled in.
func (s *Store) Limits() Limits { return s.limits }

// In returns the store within tx.
func (s *Store) In(tx engine.Tx) Txn { return Txn{store: s, tx: tx} }

// Load returns the entry that find names, or nil. find may be called twice: a
// large value is read from a snapshot, because a View would block everybody
// while it reads from disk.
func Load(ctx context.Context, eng engine.Engine, find func(engine.Tx) (Txn, Path, error)) (e *Entry, err error) {
	large := false
	err = eng.View(ctx, func(tx engine.Tx) error {
		t, p, err := find(tx)
		if err != nil {
			return err
		}
		if e = t.read(p, false); p.Root() != Leases && e != nil && e.length >= coldValue {
			large = true
			return nil
		}
		e = t.Get(p)
		return nil
	})
	if err == nil && large {
		err = eng.Snapshot(ctx, func(tx engine.Tx) error {
			t, p, err := find(tx)
			if err == nil {
				e = t.Get(p)
			}
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Wait returns the entry at p as soon as its version is at least minVersion, or
// as soon as it exists if minVersion is 0 or 1. When wait is over, it returns
// the current entry or nil; reached reports whether it is the one that was
// waited for. If ctx ends first, Wait returns its cause.
func (s *Store) Wait(ctx context.Context, p Path, minVersion uint64, wait time.Duration) (e *Entry, reached bool, err error) {
	if err := registry.CheckWait(wait); err != nil {
		return nil, false, err
	}
	if p.Root() == Leases {
		return nil, false, &registry.ArgumentError{Argument: "path", Problem: "must not be under /leases/: wait for a lease with lease_acquire and its wait_secs"}
	}
	watch := s.eng.Watch(s.keys + p.s)
	defer watch.Stop()
	err = engine.Await(ctx, watch, wait, func(last bool) (err error) {
		e, err = Load(ctx, s.eng, func(tx engine.Tx) (Txn, Path, error) { return s.In(tx), p, nil })
		reached = err == nil && e != nil && e.Version >= minVersion
		if err == nil && !reached && !last {
			return engine.ErrWait
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return e, reached, nil
}
