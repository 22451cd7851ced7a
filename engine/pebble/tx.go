package pebble

import (
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A tx is one transaction. It changes the working set at once and keeps what
// it takes to change it back.
type tx struct {
	e        *Engine // nil after the transaction's end
	now      time.Time
	writable bool
	err      error // what the transaction answers, whatever its function returned

	undo   []undo
	writes []write
	cold   coldSet
	walks  []*walk // the iterators of the store that it has had
}

// An undo is a change of the working set, and the row as it was before.
type undo struct {
	kind change
	r    *row
	before
}

type change uint8

const (
	inserted change = iota
	changed
	removed
)

// A write is what the store is to be told about one row. It is a copy, since
// a later Touch in the same transaction changes the row and not the record.
type write struct {
	kind  writeKind
	r     *row
	value string
	owner uuid.UUID
	due   int64
}

type writeKind uint8

const (
	nothing writeKind = iota // the row came and went within the transaction
	put
	deletion
)

var _ engine.Tx = (*tx)(nil)

// live stops a use after the end, which would race with another transaction.
func (t *tx) live() *memory {
	if t.e == nil {
		panic("engine: Tx used after its transaction ended")
	}
	return t.e.mem
}

func (t *tx) Now() time.Time { return t.now }

func (t *tx) Wall() time.Time { return time.Now().Round(0).UTC() }

func (t *tx) Sync() {}

func (t *tx) Get(key string) (engine.Row, bool) {
	if isCold(key) {
		return t.getCold(key)
	}
	if r := t.live().get(key); r != nil {
		return r.public(), true
	}
	return engine.Row{}, false
}

func (t *tx) Scan(prefix string) iter.Seq[engine.Row] { return t.ScanFrom(prefix, prefix) }

func (t *tx) ScanFrom(prefix, from string) iter.Seq[engine.Row] {
	from = max(prefix, from)
	return func(yield func(engine.Row) bool) {
		if isCold(prefix) {
			t.scanCold(prefix, from, yield)
			return
		}
		t.live().scan(prefix, from, func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Owned(owner uuid.UUID) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		t.live().owned(owner, func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Due() iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		t.live().due.before(t.now.UnixNano(), func(r *row) bool { return yield(r.public()) })
	}
}

func (t *tx) Put(p engine.Row) {
	if isCold(p.Key) {
		t.putCold(p)
		return
	}
	r := t.set(p)
	if r == nil {
		return
	}
	t.record(write{kind: put, r: r, value: r.value(), owner: p.Owner, due: r.due})
}

func (t *tx) Touch(p engine.Row) {
	if isCold(p.Key) {
		t.putCold(p)
		return
	}
	t.set(p)
}

func (t *tx) Delete(key string) {
	m := t.live()
	if !t.mayWrite() {
		return
	}
	if isCold(key) {
		t.writeCold(key, "", true)
		return
	}
	r := m.get(key)
	if r == nil {
		return
	}
	t.undo = append(t.undo, undo{removed, r, r.was()})
	m.remove(r)
	switch {
	case r.stored():
		t.record(write{kind: deletion, r: r})
	case r.dirty() != 0:
		t.record(write{kind: nothing, r: r})
	}
}

// set makes the working set agree with p. It gives nil when p is refused. The
// strings are copied: one cut from a request would keep all of that alive.
func (t *tx) set(p engine.Row) *row {
	m := t.live()
	if !t.mayPut(p) {
		return nil
	}
	r := m.get(p.Key)
	if r == nil {
		r = &row{due: instant(p.Due)}
		r.setText(text(p.Key, p.Value), len(p.Key))
		t.undo = append(t.undo, undo{kind: inserted, r: r})
		m.insert(r, p.Owner)
		return r
	}
	t.undo = append(t.undo, undo{changed, r, r.was()})
	if p.Value != r.value() { // a renewal changes the due time alone
		r.setText(text(p.Key, p.Value), len(p.Key))
	}
	m.setOwner(r, p.Owner)
	m.setDue(r, instant(p.Due))
	return r
}

func (t *tx) mayPut(p engine.Row) bool {
	if !t.mayWrite() {
		return false
	}
	if p.Key == "" {
		t.poison(engine.ErrNoKey)
		return false
	}
	if err := tooLarge(p); err != nil {
		t.poison(err)
		return false
	}
	return true
}

func tooLarge(p engine.Row) error {
	if len(p.Key) > engine.MaxKey {
		return fmt.Errorf("%w: key %.32q… has %d bytes, of %d", engine.ErrTooLarge, p.Key, len(p.Key), engine.MaxKey)
	}
	if len(p.Value) > engine.MaxValue {
		return fmt.Errorf("%w: value of %q has %d bytes, of %d", engine.ErrTooLarge, p.Key, len(p.Value), engine.MaxValue)
	}
	return nil
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

// record notes w, in place of an earlier write of the same row. Rows that
// held one key in turn keep their order: a deletion comes before what follows.
func (t *tx) record(w write) {
	if n := w.r.dirty(); n != 0 {
		t.writes[n-1] = w
		return
	}
	t.writes = append(t.writes, w)
	w.r.setDirty(len(t.writes))
}

// rollback restores the working set.
func (t *tx) rollback() {
	m := t.e.mem
	for i := len(t.undo) - 1; i >= 0; i-- {
		u := &t.undo[i]
		switch u.kind {
		case inserted:
			m.remove(u.r)
		case changed:
			u.r.restore(u.before)
			m.setOwner(u.r, u.owner)
			m.setDue(u.r, u.due)
		case removed:
			m.insert(u.r, u.owner)
		}
	}
	for i := range t.writes {
		t.writes[i].r.setDirty(0)
	}
}

// keys gives the keys of the rows that changed.
func (t *tx) keys() []string {
	keys := make([]string, 0, len(t.undo)+t.cold.n)
	for i := range t.undo {
		keys = append(keys, t.undo[i].r.key())
	}
	for w := range t.cold.all {
		keys = append(keys, w.key)
	}
	return keys
}
