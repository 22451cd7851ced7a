package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

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

// recover fills memory from the store.
func (e *Engine) recover() error {
	if err := e.checkFormat(); err != nil {
		return err
	}
	it, err := e.rowsStored()
	if err != nil {
		return err
	}
	var due []*row
	for ok := it.First(); ok; ok = it.Next() {
		r, owner, err := decodeRow(it.Key(), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		r.settle(true)
		e.mem.byKey[r.key] = r
		e.mem.rows.Load(r) // they come in order
		e.mem.link(r, owner)
		if r.due != never {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.key, b.key))
	})
	for _, r := range due {
		e.mem.due.Load(r)
	}
	return it.Close()
}

// rowsStored gives an iterator of the rows in the store.
func (e *Engine) rowsStored() (*pebble.Iterator, error) { return e.stored(rowSpace) }

func (e *Engine) stored(space byte) (*pebble.Iterator, error) {
	return e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
}

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
	r := &row{key: string(key), due: due}
	r.setValue(string(value))
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
