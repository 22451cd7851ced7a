package kvstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// layerLen is the length of a layer's id as it is part of keys.
const layerLen = 36

// A Store holds the entries of one layer. It keeps no state of its own: two
// Stores of one layer are the same store.
type Store struct {
	eng    engine.Engine
	leases *registry.Registry
	limits Limits
	layer  string // its id
	keys   string // what the keys of its entries begin with
}

// New returns the store of a layer; leases is the registry of its /leases/.
func New(eng engine.Engine, leases *registry.Registry, layerID uuid.UUID, limits Limits) *Store {
	id := layerID.String()
	return &Store{eng: eng, leases: leases, limits: limits.withDefaults(), layer: id, keys: entryPrefix + id}
}

// Leases is the registry of the layer's /leases/.
func (s *Store) Leases() *registry.Registry { return s.leases }

// Limits are those of the store, with the defaults in their places.
func (s *Store) Limits() Limits { return s.limits }

// In is the store inside tx.
func (s *Store) In(tx engine.Tx) Txn { return Txn{store: s, tx: tx} }

// Get returns the entry at p, or nil.
func (s *Store) Get(ctx context.Context, p Path) (e *Entry, err error) {
	err = s.eng.View(ctx, func(tx engine.Tx) error {
		e = s.In(tx).Get(p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Set writes an entry, whatever is there, and returns its version.
func (s *Store) Set(ctx context.Context, p Path, value json.RawMessage, by string) (version uint64, err error) {
	return s.update(ctx, Txn.Set, Write{Path: p, Value: value, By: by})
}

// CAS writes an entry if the one there has the expected version, with 0 if
// there is none, and returns its version.
func (s *Store) CAS(ctx context.Context, p Path, expected uint64, value json.RawMessage, by string) (version uint64, err error) {
	return s.update(ctx, Txn.Set, Write{Path: p, Value: value, Expected: &expected, By: by})
}

// Delete removes the entry at p, with expected only if it has that version. It
// returns the version that was there, 0 if there was no entry.
func (s *Store) Delete(ctx context.Context, p Path, expected *uint64) (version uint64, err error) {
	return s.update(ctx, Txn.Delete, Write{Path: p, Expected: expected})
}

func (s *Store) update(ctx context.Context, rule func(Txn, Write) (uint64, error), w Write) (version uint64, err error) {
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

// List answers q, and holds up nobody meanwhile.
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

// Wait returns the entry at p as soon as its version is at least minVersion;
// with 0 or 1, as soon as there is one. After wait it returns what is there,
// nil if nothing is, and reached says whether that is what was waited for. It
// ends with ctx, and with its cause.
func (s *Store) Wait(ctx context.Context, p Path, minVersion uint64, wait time.Duration) (e *Entry, reached bool, err error) {
	if wait < 0 || wait > registry.MaxWait {
		return nil, false, &registry.ArgumentError{Argument: "wait_secs", Problem: fmt.Sprintf("must be from 0 to %d", registry.MaxWait/time.Second)}
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
