package kvstore

import (
	"context"
	"encoding/json"
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

// Get returns the entry at p, or nil.
func (s *Store) Get(ctx context.Context, p Path) (e *Entry, err error) {
	return Load(ctx, s.eng, func(tx engine.Tx) (Txn, Path, error) { return s.In(tx), p, nil })
}

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

// Set writes an entry whatever its current version is, and returns the new
// version.
func (s *Store) Set(ctx context.Context, p Path, value json.RawMessage, by string) (version uint64, err error) {
	return s.update(ctx, Txn.Set, Write{Path: p, Value: value, By: by})
}

// CAS writes an entry if its current version is expected (0: there is no
// entry), and returns the new version.
func (s *Store) CAS(ctx context.Context, p Path, expected uint64, value json.RawMessage, by string) (version uint64, err error) {
	return s.update(ctx, Txn.Set, Write{Path: p, Value: value, Expected: &expected, By: by})
}

// Delete removes the entry at p. If expected is not nil, the entry must have
// that version. It returns the version that was removed, or 0 if there was no
// entry.
func (s *Store) Delete(ctx context.Context, p Path, expected *uint64) (version uint64, err error) {
	return s.update(ctx, Txn.Delete, Write{Path: p, Expected: expected})
}

func (s *Store) update(ctx context.Context, rule func(Txn, Write) (uint64, error), w Write) (version uint64, err error) {
	if w.Value != nil {
		if w, err = w.Compact(); err != nil {
			return 0, err
		}
	}
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		var refusal error
		version, refusal = rule(s.In(tx), w)
		return refusal
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// List answers q. It reads a snapshot, so it blocks no other call.
func (s *Store) List(ctx context.Context, q Query) (l Listing, err error) {
	err = s.eng.Snapshot(ctx, func(tx engine.Tx) (err error) {
		l, err = s.In(tx).List(ctx, q)
		return err
	})
	if err != nil {
		return Listing{}, err
	}
	return l, nil
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
		e, err = s.Get(ctx, p)
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
