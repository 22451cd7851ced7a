package kvstore

import (
	"encoding/json"
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// A Txn is a [Store] within one transaction. Its changes are committed or
// undone together with everything else in the transaction, so other conditions
// of a write, such as a lease, can be checked in the same transaction.
type Txn struct {
	store *Store
	tx    engine.Tx
}

// A Write is one change of an entry.
type Write struct {
	Path     Path
	Value    json.RawMessage
	Expected *uint64   // the version that the entry must have, 0: no entry; nil: any
	By       string    // path of the actor
	Call     call.Call // the zero Call cannot be repeated
	Fence    registry.Fence

	compact bool // Value is already in its stored form
}

// Compact brings the value into its stored form, and checks it. That takes time
// for a large value, so callers do it before the transaction; [Txn.Set] does it
// if they did not.
func (w Write) Compact() (Write, error) {
	if w.compact {
		return w, nil
	}
	value, err := compact(w.Value)
	w.Value, w.compact = value, err == nil
	return w, err
}

// Get returns the entry at p, or nil.
func (t Txn) Get(p Path) *Entry {
	if p.Root() == Leases {
		return leaseEntry(t.store.leases, t.tx, p)
	}
	return t.read(p, true)
}

// Set writes an entry and returns its version. The error is a
// [registry.StaleError], a [registry.LimitError], a [VersionError] or a
// [registry.ArgumentError].
func (t Txn) Set(w Write) (version uint64, err error) {
	if err := checkWritable(w.Path); err != nil {
		return 0, err
	}
	return t.once(w, Txn.set)
}

// Delete removes the entry at w.Path and returns the version it had, or 0 if
// there was none. It does not use w.Value.
func (t Txn) Delete(w Write) (version uint64, err error) {
	if err := checkWritable(w.Path); err != nil {
		return 0, err
	}
	return t.once(w, Txn.delete)
}

// DropPeer removes at most limit entries of the member called name, which is
// gone for good. It returns true once none is left.
func (t Txn) DropPeer(name string, limit int) (done bool) {
	s := t.store
	use := s.usage(t.tx)
	n := 0
	for row := range t.tx.Scan(s.keys + "/" + Peer + "/" + name + "/") {
		if n == limit {
			break
		}
		n++
		e := t.entry(row, false)
		use.Entries--
		use.Bytes -= e.size()
		remove(t.tx, row.Key)
	}
	if n > 0 {
		s.putUsage(t.tx, use)
	}
	return n < limit
}

// Drop removes at most limit rows of a layer that is gone for good: entries,
// versions, usage and leases. It returns true once nothing is left. Until then
// the rows contradict one another, so the store must no longer be used.
func (t Txn) Drop(limit int) (done bool) {
	s := t.store
	n := 0
	for _, prefix := range []string{s.keys, versionPrefix + s.layer} {
		for row := range t.tx.Scan(prefix) {
			if n == limit {
				return false
			}
			n++
			remove(t.tx, row.Key)
		}
	}
	if !s.leases.Drop(t.tx, limit-n) {
		return false
	}
	t.tx.Delete(usagePrefix + s.layer)
	return true
}

// Usage returns how much the store holds.
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

// writing is the kind of the recorded answer of a write, which is the version
// that the write created or removed.
const writing call.Kind = "kv"

// once performs a write, or returns the recorded answer if the call is
// repeated.
func (t Txn) once(w Write, rule func(Txn, Write) (uint64, error)) (version uint64, err error) {
	answer, ok, err := w.Call.Answered(t.tx, writing)
	if err != nil {
		return 0, err
	}
	if ok && len(answer) == 8 {
		return record.ReadFixed(answer), nil
	}
	if err := w.Fence.Check(t.tx); err != nil {
		return 0, err
	}
	if version, err = rule(t, w); err != nil {
		return 0, err
	}
	w.Call.Record(t.tx, writing, record.Fixed(version), 0)
	return version, nil
}

// read returns the entry at p, or nil. It reads the value only if value is set.
func (t Txn) read(p Path, value bool) *Entry {
	row, ok := t.tx.Get(t.store.keys + p.s)
	if !ok {
		return nil
	}
	e := t.entry(row, value)
	return &e
}

// expect compares the current version with the one that the write expects.
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

func (t Txn) set(w Write) (version uint64, err error) {
	s := t.store
	if w, err = w.Compact(); err != nil {
		return 0, err
	}
	value := w.Value
	if len(value) > s.limits.ValueBytes {
		return 0, &registry.LimitError{Which: "bytes in a value", Max: int64(s.limits.ValueBytes), TooLarge: true}
	}
	was := t.read(w.Path, false)
	if err := expect(w, was); err != nil {
		return 0, err
	}

	e := Entry{Path: w.Path, Value: value, UpdatedAt: t.tx.Wall(), UpdatedBy: w.By, length: len(value)}
	use, grows := s.usage(t.tx), e.size()
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

	e.Version = s.nextVersion(t.tx, w.Path)
	e.put(t.tx, s.keys+w.Path.s)
	s.putUsage(t.tx, use)
	return e.Version, nil
}

func (t Txn) delete(w Write) (version uint64, err error) {
	s := t.store
	was := t.read(w.Path, false)
	if err := expect(w, was); err != nil || was == nil {
		return 0, err
	}
	use := s.usage(t.tx)
	use.Entries--
	use.Bytes -= was.size()
	remove(t.tx, s.keys+w.Path.s)
	s.putUsage(t.tx, use)
	return was.Version, nil
}

// size is the entry's share of [Limits.Bytes].
func (e Entry) size() int64 { return int64(len(e.Path.s) + e.length) }

// entry decodes the entry of a row. It reads a cold value only if value is set. An
// unreadable record yields an entry without a value; Recover has already
// checked all records.
func (t Txn) entry(row engine.Row, value bool) Entry {
	e, cold, _ := decodeEntry(row.Value)
	e.Path = Path{strings.TrimPrefix(row.Key, t.store.keys)}
	if value && cold {
		stored, _ := t.tx.Get(engine.Cold + row.Key)
		e.Value = json.RawMessage(stored.Value)
	}
	return e
}
