package kvstore

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A Txn is a [Store] inside one transaction: what it reads and writes stands
// or falls with whatever else the transaction does, and what must be true of a
// write besides its version, such as a lease, is checked beside it.
type Txn struct {
	store *Store
	tx    engine.Tx
}

// A Write is one change of an entry.
type Write struct {
	Path     Path
	Value    json.RawMessage
	Expected *uint64 // the version that must be there, 0: no entry; nil: any
	By       string  // path of the actor
	Call     Call
}

// Get returns the entry at p, or nil.
func (t Txn) Get(p Path) *Entry {
	if p.Root() == Leases {
		return leaseEntry(t.store.leases, t.tx, p)
	}
	return t.store.get(t.tx, p)
}

// Set writes an entry and returns its version. It is a [registry.LimitError],
// a [VersionError] or a [registry.ArgumentError] otherwise.
func (t Txn) Set(w Write) (version uint64, err error) {
	if err := checkWritable(w.Path); err != nil {
		return 0, err
	}
	return t.store.set(t.tx, w)
}

// Delete removes the entry at w.Path and returns the version it had, 0 if
// there was none. The Value of w is not looked at.
func (t Txn) Delete(w Write) (version uint64, err error) {
	if err := checkWritable(w.Path); err != nil {
		return 0, err
	}
	return t.store.delete(t.tx, w)
}

// DropPeer removes the entries of the member name, for a member that is gone
// for good.
func (t Txn) DropPeer(name string) {
	s := t.store
	use := s.usage(t.tx)
	for row := range t.tx.Scan(s.keys + "/" + Peer + "/" + name + "/") {
		e := s.mustEntry(row, true)
		use.Entries--
		use.Bytes -= e.size()
		t.tx.Delete(row.Key)
	}
	s.putUsage(t.tx, use)
}

// Drop removes all that the layer has here: entries, versions, usage and
// leases, for a layer that is gone for good.
func (t Txn) Drop() {
	s := t.store
	s.leases.Drop(t.tx)
	for _, prefix := range []string{s.keys, versionPrefix + s.layer} {
		for row := range t.tx.Scan(prefix) {
			t.tx.Delete(row.Key)
		}
	}
	t.tx.Delete(usagePrefix + s.layer)
}

// Usage is how much the store holds.
func (t Txn) Usage() Usage { return t.store.usage(t.tx) }

func checkWritable(p Path) error {
	switch p.Root() {
	case Leases:
		return &registry.ArgumentError{Argument: "path", Problem: "must not be under /leases/: lease_acquire and lease_release write there"}
	case "":
		return &registry.ArgumentError{Argument: "path", Problem: fourRoots}
	}
	return nil
}

func (s *Store) get(tx engine.Tx, p Path) *Entry {
	row, ok := tx.Get(s.keys + p.s)
	if !ok {
		return nil
	}
	e := s.mustEntry(row, true)
	return &e
}

// expect compares what is there with what the write expects.
func expect(w Write, was *Entry) error {
	version := uint64(0)
	if was != nil {
		version = was.Version
	}
	if w.Expected != nil && *w.Expected != version {
		return &VersionError{Path: w.Path, Version: version}
	}
	return nil
}

func (s *Store) set(tx engine.Tx, w Write) (version uint64, err error) {
	value, err := compact(w.Value)
	if err != nil {
		return 0, err
	}
	if len(value) > s.limits.ValueBytes {
		return 0, &registry.LimitError{Which: "bytes in a value", Max: int64(s.limits.ValueBytes)}
	}
	was := s.get(tx, w.Path)
	if w.Call.Resent && was != nil && was.call == w.Call.ID {
		return was.Version, nil
	}
	if err := expect(w, was); err != nil {
		return 0, err
	}

	e := Entry{Path: w.Path, Value: value, UpdatedAt: tx.Wall(), UpdatedBy: w.By, call: w.Call.ID}
	use, grows := s.usage(tx), e.size()
	use.Entries++
	if was != nil {
		use.Entries--
		grows -= was.size()
	}
	use.Bytes += grows
	if was == nil && use.Entries > int64(s.limits.Entries) {
		return 0, &registry.LimitError{Which: "entries in the store of this layer", Max: int64(s.limits.Entries)}
	}
	if grows > 0 && use.Bytes > s.limits.Bytes {
		return 0, &registry.LimitError{Which: "bytes in the store of this layer", Max: s.limits.Bytes}
	}

	e.Version = s.nextVersion(tx, w.Path)
	tx.Put(e.row(s.keys + w.Path.s))
	s.putUsage(tx, use)
	return e.Version, nil
}

func (s *Store) delete(tx engine.Tx, w Write) (version uint64, err error) {
	was := s.get(tx, w.Path)
	if w.Call.Resent && was == nil && w.Expected != nil {
		return *w.Expected, nil // gone, which is what the call was for
	}
	if err := expect(w, was); err != nil || was == nil {
		return 0, err
	}
	use := s.usage(tx)
	use.Entries--
	use.Bytes -= was.size()
	tx.Delete(s.keys + w.Path.s)
	s.putUsage(tx, use)
	return was.Version, nil
}

// size is what the entry counts for in [Limits].
func (e Entry) size() int64 { return int64(len(e.Path.s) + len(e.Value)) }

// mustEntry reads a row that Recover has read before, or that this process
// wrote: that it cannot be read now is a fault of the program. With values it
// copies the value out.
func (s *Store) mustEntry(row engine.Row, values bool) Entry {
	e, value, err := decodeEntry(row.Value)
	if err != nil {
		panic(fmt.Sprintf("kvstore: row %q: %v", row.Key, err))
	}
	e.Path = Path{strings.TrimPrefix(row.Key, s.keys)}
	if values {
		e.Value = json.RawMessage(value)
	}
	return e
}
