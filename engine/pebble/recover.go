package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

const (
	metaSpace = 0x00
	rowSpace  = 0x01
	coldSpace = 0x02

	formatVersion = 1
)

var formatKey = append([]byte{metaSpace}, "format"...)

// recover fills memory from the store. It takes longer to index the rows than to
// read them, so the indexes are filled at once, each from its own order.
func (e *Engine) recover() error {
	if err := e.checkFormat(); err != nil {
		return err
	}
	it, err := e.rowsStored()
	if err != nil {
		return err
	}
	var rows []*row
	var due []dueRow
	for ok := it.First(); ok; ok = it.Next() {
		r, owner, err := decodeRow(it.Key(), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		r.settle(true)
		e.mem.link(r, owner)
		if r.due != never {
			due = append(due, dueRow{r.due, len(rows)})
		}
		rows = append(rows, r)
	}
	var wg sync.WaitGroup
	wg.Go(func() { e.mem.loadDue(rows, due) })
	wg.Go(func() { e.mem.loadKeys(rows) })
	for _, r := range rows { // they come in order
		e.mem.rows.Load(r)
	}
	wg.Wait()
	return it.Close()
}

// A dueRow is a row's due time, and its place in the order of the keys. There
// are many to sort, so they are compared without a look at the rows.
type dueRow struct {
	due   int64
	place int
}

func (m *memory) loadDue(rows []*row, due []dueRow) {
	slices.SortFunc(due, func(a, b dueRow) int {
		if a.due != b.due {
			return cmp.Compare(a.due, b.due)
		}
		return a.place - b.place
	})
	for _, d := range due {
		m.due.Load(rows[d.place])
	}
}

func (m *memory) loadKeys(rows []*row) {
	m.byKey = make(map[string]*row, len(rows))
	for _, r := range rows {
		m.byKey[r.key] = r
	}
}

// rowsStored gives an iterator of the rows in the store.
func (e *Engine) rowsStored() (*pebble.Iterator, error) { return e.stored(rowSpace) }

func (e *Engine) stored(space byte) (*pebble.Iterator, error) {
	return e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
}

// smallValue is how long a value may be that shares its memory with its key,
// and so is kept until the row goes, also when another has taken its place.
const smallValue = 128

// decodeRow reads what is stored under key, and its owner.
func decodeRow(key, record []byte) (*row, uuid.UUID, error) {
	key = key[1:]
	value, owner, due, err := decodeRecord(record)
	if err == nil && (len(key) == 0 || len(key) > engine.MaxKey) {
		err = errors.New("key is too short or too long")
	}
	if err == nil && isCold(string(key)) {
		err = errors.New("a cold row among the others")
	}
	if err != nil {
		return nil, owner, fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
	}
	r := &row{due: due}
	if len(value) > smallValue {
		r.key = string(key)
		r.setValue(string(value))
		return r, owner, nil
	}
	both := string(append(append(make([]byte, 0, 256), key...), value...))
	r.key = both[:len(key)]
	r.setValue(both[len(key):])
	return r, owner, nil
}

// checkFormat refuses a state that a later version of this package has
// written, and marks a new one.
func (e *Engine) checkFormat() error {
	b, closer, err := e.db.Get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return e.db.Set(formatKey, []byte{formatVersion}, pebble.Sync)
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	if len(b) != 1 {
		return fmt.Errorf("%w: key %q", engine.ErrCorrupt, "format")
	}
	if b[0] > formatVersion {
		return fmt.Errorf("engine: state has format %d, and this program knows formats up to %d", b[0], formatVersion)
	}
	return nil
}
