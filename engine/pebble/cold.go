package pebble

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

func isCold(key string) bool { return strings.HasPrefix(key, engine.Cold) }

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

// writeCold notes the write of a cold row. Neither key nor value is copied, since
// both will soon be dropped.
func (t *tx) writeCold(key, value string, gone bool) {
	t.cold.set(coldWrite{key: key, value: value, gone: gone})
}

func (t *tx) getCold(key string) (engine.Row, bool) {
	t.live()
	e := t.e
	if w := t.cold.get(key); w != nil {
		return w.public()
	}
	if value, ok := e.recent.get(key); ok { // it has what the overlay has, or nothing
		return engine.Row{Key: key, Value: value}, true
	}
	if w, _ := e.overlay.get(key); w != nil {
		return w.public()
	}
	r, ok, err := e.readCold(key)
	if err != nil {
		t.poison(err)
	}
	if ok {
		e.recent.set(key, r.Value, false)
	}
	return r, ok
}

// nextCold gives the first write in the transaction or in the overlay whose key
// starts with prefix and is not less than at, or is greater than that if past. Of
// those of one row it gives the last.
func (t *tx) nextCold(prefix, at string, past bool) *coldWrite {
	next := t.cold.next(prefix, at, past)
	for _, c := range slices.Backward(t.e.overlay.commits) {
		if w := c.cold.next(prefix, at, past); w != nil && (next == nil || w.key < next.key) {
			next = w
		}
	}
	return next
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
	r, err := decodeCold(stored[1:], record)
	return r, err == nil, errors.Join(err, closer.Close())
}

// decodeCold reads the record under key. The row's key and value are one piece of
// memory.
func decodeCold(key, record []byte) (engine.Row, error) {
	value, owner, due, err := decodeRecord(record)
	if err == nil && (owner != uuid.Nil || due != never) {
		err = errors.New("a cold record with an owner or a due time")
	}
	if err != nil {
		return engine.Row{}, fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
	}
	var b strings.Builder
	b.Grow(len(key) + len(value))
	b.Write(key)
	b.Write(value)
	both := b.String()
	return engine.Row{Key: both[:len(key)], Value: both[len(key):]}, nil
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
	w, err := t.walk(prefix)
	if err != nil {
		t.poison(readError(from, err))
		return
	}
	defer func() { w.busy = false }()
	at, past := from, false
	over, moved := t.nextCold(prefix, at, past), t.cold.moved
	for stored := w.it.SeekGE(append([]byte{coldSpace}, from...)); ; {
		if !stored && w.it.Error() != nil {
			t.poison(readError(at, w.it.Error()))
			return
		}
		if moved != t.cold.moved {
			over, moved = t.nextCold(prefix, at, past), t.cold.moved
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
			r, err := storedCold(w.it)
			if err != nil {
				t.poison(err)
				return
			}
			at, past = r.Key, true
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
		over, moved = t.nextCold(prefix, at, past), t.cold.moved
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

// storedCold gives the row that it stands on.
func storedCold(it *pebble.Iterator) (engine.Row, error) {
	key := it.Key()[1:]
	record, err := it.ValueAndErr()
	if err != nil {
		return engine.Row{}, readError(string(key), err)
	}
	return decodeCold(key, record)
}
