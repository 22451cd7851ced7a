package pebble

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
	"github.com/tidwall/btree"

	"github.com/leasehold/leasehold/engine"
)

func isCold(key string) bool { return strings.HasPrefix(key, engine.Cold) }

// An overlay has the writes of cold rows that may not be in the store yet: of
// the transaction that runs, and of commits on their way. It is guarded by
// Engine.mu, and what a transaction sees is the store with the overlay on it.
//
// A write leaves the overlay when its commit is known to be applied, that is
// when everybody who reads from the store from then on finds it there. Drops
// come before a transaction and not within it, so an iterator that was made in
// a transaction has all that the overlay has not, until the transaction ends.
// Whether it also has some of what the overlay has does not matter: what the
// overlay has of a row is its last write, and goes before.
type overlay struct {
	writes  *btree.BTreeG[*coldWrite] // in the order of their keys
	moved   uint64                    // counts the changes of its shape
	commits []*commit                 // those it has writes of, in their order
	probe   coldWrite                 // what a lookup compares with
}

// A coldWrite is the last write of a cold row.
type coldWrite struct {
	key    string
	value  string
	gone   bool
	commit *commit    // nil in the transaction that writes it
	before *coldWrite // what a rollback puts back, while commit is nil
}

func newOverlay() *overlay {
	less := func(a, b *coldWrite) bool { return a.key < b.key }
	return &overlay{writes: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (o *overlay) get(key string) *coldWrite {
	if o.writes.Len() == 0 {
		return nil
	}
	o.probe.key = key
	w, _ := o.writes.Get(&o.probe)
	return w
}

// next gives the first write whose key starts with prefix and is not less than
// at, or is greater than that if past.
func (o *overlay) next(prefix, at string, past bool) *coldWrite {
	if o.writes.Len() == 0 {
		return nil
	}
	it := o.writes.Iter()
	o.probe.key = at
	ok := it.Seek(&o.probe)
	if ok && past && it.Item().key == at {
		ok = it.Next()
	}
	if !ok || !strings.HasPrefix(it.Item().key, prefix) {
		return nil
	}
	return it.Item()
}

// revert undoes w, of a transaction that is rolled back.
func (o *overlay) revert(w *coldWrite) {
	if w.before != nil {
		o.writes.Set(w.before)
	} else {
		o.writes.Delete(w)
	}
	o.moved++
}

// commit makes w a part of c.
func (o *overlay) commit(w *coldWrite, c *commit) {
	w.commit, w.before = c, nil
	if len(c.cold) == 0 {
		o.commits = append(o.commits, c)
	}
	c.cold = append(c.cold, w)
}

// drop removes the writes of commits that are applied. Those are the first, as
// commits are applied in order. What a later commit has written again stays.
func (o *overlay) drop() {
	for len(o.commits) > 0 && o.commits[0].applied.Load() {
		for _, w := range o.commits[0].cold {
			if o.get(w.key) == w {
				o.writes.Delete(w)
				o.moved++
			}
		}
		o.commits[0].cold = nil // it may be referred to as the last for long
		o.commits[0] = nil
		o.commits = o.commits[1:]
	}
}

func (w *coldWrite) public() (engine.Row, bool) {
	if w.gone {
		return engine.Row{}, false
	}
	return engine.Row{Key: w.key, Value: w.value}, true
}

func (w *coldWrite) encode(b *pebble.Batch) {
	var op *pebble.DeferredBatchOp
	if w.gone {
		op = b.DeleteDeferred(1 + len(w.key))
	} else {
		op = b.SetDeferred(1+len(w.key), recordSize(w.value, uuid.Nil, never))
		encodeRecord(op.Value, w.value, uuid.Nil, never)
	}
	op.Key[0] = coldSpace
	copy(op.Key[1:], w.key)
	_ = op.Finish() // fails for an indexed batch only
}

func (t *tx) putCold(p engine.Row) {
	t.live()
	if !t.mayPut(p) {
		return
	}
	if p.Owner != uuid.Nil || !p.Due.IsZero() {
		t.poison(fmt.Errorf("%w: key %q", engine.ErrCold, p.Key))
		return
	}
	t.writeCold(p.Key, p.Value, false)
}

// writeCold notes the write of a cold row. It copies the key, which may be cut
// from something larger, and not the value, which will soon be dropped.
func (t *tx) writeCold(key, value string, gone bool) {
	o := t.e.overlay
	before := o.get(key)
	if before != nil && before.commit == nil {
		before.value, before.gone = value, gone
		return
	}
	w := &coldWrite{key: strings.Clone(key), value: value, gone: gone, before: before}
	o.writes.Set(w)
	o.moved++
	t.cold = append(t.cold, w)
}

func (t *tx) getCold(key string) (engine.Row, bool) {
	t.live()
	if w := t.e.overlay.get(key); w != nil {
		return w.public()
	}
	if value, ok := t.e.recent.get(key); ok {
		return engine.Row{Key: key, Value: value}, true
	}
	r, ok, err := t.e.readCold(key)
	if err != nil {
		t.poison(err)
	}
	if ok {
		t.e.recent.set(strings.Clone(key), r.Value, false)
	}
	return r, ok
}

// readCold gives the cold row that the store has under key.
func (e *Engine) readCold(key string) (engine.Row, bool, error) {
	stored := append(append(make([]byte, 0, 128), coldSpace), key...)
	record, closer, err := e.db.Get(stored)
	if errors.Is(err, pebble.ErrNotFound) {
		return engine.Row{}, false, nil
	}
	if err != nil {
		return engine.Row{}, false, readError(key, err)
	}
	r, err := decodeCold(key, record)
	return r, err == nil, errors.Join(err, closer.Close())
}

// decodeCold reads the record under key.
func decodeCold(key string, record []byte) (engine.Row, error) {
	value, owner, due, err := decodeRecord(record)
	if err == nil && (owner != uuid.Nil || due != never) {
		err = errors.New("a cold record with an owner or a due time")
	}
	if err != nil {
		return engine.Row{}, fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
	}
	return engine.Row{Key: key, Value: string(value)}, nil
}

// readError says what err, of Pebble's, means for who reads at key.
func readError(key string, err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
	}
	return fmt.Errorf("engine: read %q: %w", key, err)
}

// A walk is an iterator of the store, for one scan at a time.
type walk struct {
	it   *pebble.Iterator
	busy bool
}

// walk gives an iterator over the rows whose key starts with prefix.
func (t *tx) walk(prefix string) (*walk, error) {
	lower := append([]byte{coldSpace}, prefix...)
	upper := after(lower)
	for _, w := range t.walks {
		if !w.busy {
			w.busy = true
			w.it.SetBounds(lower, upper)
			return w, nil
		}
	}
	it, err := t.e.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, err
	}
	w := &walk{it: it, busy: true}
	t.walks = append(t.walks, w)
	return w, nil
}

// after gives the least key that is greater than all that start with prefix,
// which starts with a byte that is not 0xff.
func after(prefix []byte) []byte {
	n := len(prefix)
	for prefix[n-1] == 0xff {
		n--
	}
	end := append([]byte(nil), prefix[:n]...)
	end[n-1]++
	return end
}

// endWalks closes the iterators, also of scans that were never ended.
func (t *tx) endWalks() {
	for _, w := range t.walks {
		_ = w.it.Close() // what it could not read the scan has told
	}
	t.walks = nil
}

// scanCold merges what the overlay and the store have. Of a row that both have
// the overlay has the last.
func (t *tx) scanCold(prefix, from string, yield func(engine.Row) bool) {
	t.live()
	o := t.e.overlay
	w, err := t.walk(prefix)
	if err != nil {
		t.poison(readError(from, err))
		return
	}
	defer func() { w.busy = false }()
	at, past := from, false
	over, moved := o.next(prefix, at, past), o.moved
	for stored := w.it.SeekGE(append([]byte{coldSpace}, from...)); ; {
		if !stored && w.it.Error() != nil {
			t.poison(readError(at, w.it.Error()))
			return
		}
		if moved != o.moved {
			over, moved = o.next(prefix, at, past), o.moved
		}
		order := -1 // of the store's next row to the overlay's
		switch {
		case !stored && over == nil:
			return
		case !stored:
			order = 1
		case over != nil:
			order = compare(w.it.Key()[1:], over.key)
		}
		if order < 0 {
			at, past = string(w.it.Key()[1:]), true
			r, err := storedCold(w.it, at)
			if err != nil {
				t.poison(err)
				return
			}
			if !yield(r) {
				return
			}
			stored = w.it.Next()
			continue
		}
		r, ok := over.public()
		at, past = over.key, true
		if ok && !yield(r) {
			return
		}
		if order == 0 {
			stored = w.it.Next()
		}
		over, moved = o.next(prefix, at, past), o.moved
	}
}

func compare(a []byte, b string) int {
	switch {
	case string(a) < b:
		return -1
	case string(a) > b:
		return 1
	}
	return 0
}

// storedCold gives the row that it stands on, whose key is key.
func storedCold(it *pebble.Iterator, key string) (engine.Row, error) {
	record, err := it.ValueAndErr()
	if err != nil {
		return engine.Row{}, readError(key, err)
	}
	return decodeCold(key, record)
}
