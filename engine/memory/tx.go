package memory

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A tx is one transaction. It changes the working set immediately, and keeps
// what is necessary to undo that.
type tx struct {
	e        *Engine // nil after the transaction has ended
	set      *set
	store    Reader
	recent   *recent // nil in a snapshot
	now      time.Time
	wall     time.Time
	told     time.Duration // for WallAt
	writable bool
	disk     bool  // its commit must survive the machine
	noWait   bool  // its caller does not wait for its commit
	err      error // the transaction's result, whatever its function returned

	undo     []undo
	writes   []Write
	cold     *coldRows // those that may not have reached the store
	coldUndo []coldUndo
	after    []func() // to be called when it is durable
	pace     pace
	rests    bool // it holds no lock, so it rests
}

// An undo is one change of the working set; nil is no row.
type undo struct{ was, is *row }

func (u undo) key() string { return cmp.Or(u.is, u.was).key }

// A coldUndo is one change of the cold writes.
type coldUndo struct {
	key string
	was coldWrite
	had bool // there was an earlier write
}

var _ engine.Tx = (*tx)(nil)

// live panics if the transaction has ended, because a later use would race with
// another transaction.
func (t *tx) live() *set {
	if t.e == nil {
		panic("engine: Tx used after its transaction ended")
	}
	return t.set
}

func (t *tx) Now() time.Time  { return t.now }
func (t *tx) Wall() time.Time { return t.wall }

func (t *tx) WallAt(running time.Time) time.Time { return running.Add(t.told).UTC() }

func (t *tx) Sync()   { t.disk = true }
func (t *tx) NoWait() { t.noWait = true }

func (t *tx) AfterCommit(fn func()) { t.after = append(t.after, fn) }

func (t *tx) Spent() bool {
	t.pace.spent = t.pace.spent || time.Since(t.pace.since) >= stretch
	return t.pace.spent
}

func (t *tx) Get(key string) (engine.Row, bool) {
	if isCold(key) {
		r, ok, err := t.Try(key)
		if err != nil {
			t.poison(err)
		}
		return r, ok
	}
	r := t.live().get(key)
	return r.public(), r != nil
}

func (t *tx) Try(key string) (r engine.Row, ok bool, err error) {
	t.live()
	if w, found := t.cold.Get(key); found {
		r, ok = w.public(key)
		return r, ok, nil
	}
	if t.recent != nil {
		if value, ok := t.recent.get(key); ok {
			return engine.Row{Key: key, Value: value}, true, nil
		}
	}
	r, ok, err = readCold(t.store, key)
	switch {
	case err != nil && !errors.Is(err, engine.ErrCorrupt):
		t.poison(err) // perhaps it can be read later
	case !ok:
	case t.recent != nil:
		t.recent.set(key, coldWrite{value: r.Value})
	case t.rests && !t.hasRead(&r):
		return engine.Row{}, false, t.err
	}
	return r, ok, err
}

func (t *tx) First(prefix, from string) (first engine.Row, ok bool) {
	if isCold(prefix) {
		for first = range t.ScanFrom(prefix, from) {
			return first, true
		}
		return engine.Row{}, false
	}
	r := t.live().first(prefix, max(prefix, from))
	return r.public(), r != nil
}

func (t *tx) Scan(prefix string) iter.Seq[engine.Row] { return t.ScanFrom(prefix, prefix) }

func (t *tx) ScanFrom(prefix, from string) iter.Seq[engine.Row] {
	from = max(prefix, from)
	return func(yield func(engine.Row) bool) {
		if t.rests {
			yield = t.between(yield)
		}
		if isCold(prefix) {
			t.scanCold(prefix, from, yield)
			return
		}
		t.live().scan(prefix, from, func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Owned(owner uuid.UUID, prefix string) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		t.live().ownedBy(owner, prefix, func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Due() iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		t.live().dueBefore(t.now.UnixNano(), func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Put(p engine.Row) {
	was, is := t.write(p)
	if is == nil {
		return
	}
	is.stored, is.once = true, was == nil || !was.stored
	t.writes = append(t.writes, Write{Space: Hot, Key: is.key, value: is.value, owner: is.owner, due: is.due})
}

func (t *tx) Touch(p engine.Row) { t.write(p) }

// write puts p in the working set or, if it is cold, among the cold writes. It
// returns no rows for a cold row, or if p is refused.
func (t *tx) write(p engine.Row) (was, is *row) {
	s := t.live()
	switch {
	case !t.mayPut(p):
		return nil, nil
	case isCold(p.Key):
		t.writeCold(p.Key, coldWrite{value: p.Value})
		return nil, nil
	}
	is = newRow(p)
	was = s.put(is)
	t.undo = append(t.undo, undo{was, is})
	if was != nil {
		is.stored, is.once = was.stored, was.once
	}
	return was, is
}

func (t *tx) Delete(key string) {
	s := t.live()
	if !t.mayWrite() {
		return
	}
	if isCold(key) {
		t.writeCold(key, coldWrite{gone: true})
		return
	}
	r := s.delete(key)
	if r == nil {
		return
	}
	t.undo = append(t.undo, undo{was: r})
	if r.stored {
		t.writes = append(t.writes, Write{Space: Hot, Key: r.key, Delete: true, Once: r.once})
	}
}

// writeCold notes the write of a cold row. It copies neither key nor value,
// because both are dropped as soon as the store has them.
func (t *tx) writeCold(key string, w coldWrite) {
	was, had := t.cold.Set(key, w)
	t.coldUndo = append(t.coldUndo, coldUndo{key, was, had})
}

func (t *tx) mayPut(p engine.Row) bool {
	if !t.mayWrite() {
		return false
	}
	switch {
	case p.Key == "":
		t.poison(engine.ErrNoKey)
	case len(p.Key) > engine.MaxKey:
		t.poison(fmt.Errorf("%w: key %.32q… has %d bytes, of %d", engine.ErrTooLarge, p.Key, len(p.Key), engine.MaxKey))
	case len(p.Value) > engine.MaxValue:
		t.poison(fmt.Errorf("%w: value of %q has %d bytes, of %d", engine.ErrTooLarge, p.Key, len(p.Value), engine.MaxValue))
	case isCold(p.Key) && (p.Owner != uuid.Nil || !p.Due.IsZero()):
		t.poison(fmt.Errorf("%w: key %q", engine.ErrCold, p.Key))
	default:
		return true
	}
	return false
}

func (t *tx) mayWrite() bool {
	if !t.writable {
		t.poison(engine.ErrReadOnly)
	}
	return t.writable
}

func (t *tx) poison(err error) {
	if t.err == nil {
		t.err = err
	}
}

// While the store is full, a transaction may write littleGrowth bytes more than
// it deletes, which is enough for a lease or the answer of a call. The store says
// how much all such transactions may write together.
const littleGrowth = 2 << 10

// full reports whether the store is too full for the transaction.
func (e *Engine) full(t *tx, needed bool) bool {
	full, growth := e.store.Full()
	if !full {
		e.grown = 0
		return false
	}
	n := t.growth()
	if !needed && n > 0 && (n > littleGrowth || e.grown+n > growth) {
		return true
	}
	e.grown = max(0, e.grown+n)
	return false
}

// growth returns how many bytes the transaction writes more than it deletes.
// The size of a deleted cold row is unknown, so its deletion counts as nothing.
func (t *tx) growth() (n int) {
	for i := range t.writes {
		if w := &t.writes[i]; !w.Delete {
			n += len(w.Key) + len(w.value)
		}
	}
	for _, u := range t.undo {
		if u.was != nil && u.was.stored {
			n -= len(u.was.key) + len(u.was.value)
		}
	}
	for i := range t.coldUndo {
		u := &t.coldUndo[i]
		if w, _ := t.cold.Get(u.key); !w.gone {
			n += len(u.key) + len(w.value)
		}
		if u.had && !u.was.gone {
			n -= len(u.key) + len(u.was.value)
		}
	}
	return n
}

func (t *tx) rollback() {
	for _, u := range slices.Backward(t.undo) {
		if u.was != nil {
			t.set.put(u.was)
		} else {
			t.set.delete(u.is.key)
		}
	}
	for _, u := range slices.Backward(t.coldUndo) {
		if u.had {
			t.cold.Set(u.key, u.was)
		} else {
			t.cold.Delete(u.key)
		}
	}
}

func (t *tx) keys() []string {
	keys := make([]string, 0, len(t.undo)+len(t.coldUndo))
	for _, u := range t.undo {
		keys = append(keys, u.key())
	}
	for i := range t.coldUndo {
		keys = append(keys, t.coldUndo[i].key)
	}
	return keys
}
