package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"

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

var (
	formatKey = append([]byte{metaSpace}, "format"...)
	coldKey   = []byte(engine.Cold)
)

// recover fills memory from the store. One goroutine reads and the other fills
// the indexes, which takes about as long.
func (e *Engine) recover() error {
	if err := e.checkFormat(); err != nil {
		return err
	}
	if size, err := e.db.EstimateDiskUsage([]byte{rowSpace}, []byte{rowSpace + 1}); err == nil && size > largeState {
		defer restCollector()()
	}
	it, err := e.rowsStored()
	if err != nil {
		return err
	}
	read := make(chan slab, 64)
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		order := orderLoader[string, *row]{o: e.mem.rows}
		table := tableLoader{t: e.mem.table}
		for s := range read {
			for i := range s.rows {
				r := &s.rows[i]
				e.mem.link(r, s.owners[i])
				order.add(r)
				table.add(r)
			}
		}
		table.done()
	}()
	err = readRows(it, read)
	close(read)
	<-filled
	return errors.Join(err, it.Close())
}

// rowsStored gives an iterator of the rows in the store.
func (e *Engine) rowsStored() (*pebble.Iterator, error) { return e.stored(rowSpace) }

func (e *Engine) stored(space byte) (*pebble.Iterator, error) {
	return e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
}

// A slab is rows that were read one after another, and share their memory: it
// is freed with the last of them, so what rows that stay hold on to is never
// more than all took when the state was opened.
type slab struct {
	rows   []row
	owners []uuid.UUID
}

const (
	slabRows = 63      // which fill 4 kB, with the word that the allocator keeps with them
	slabText = 8 << 10 // bytes; a longer text has memory of its own
)

func newSlab() slab { return slab{make([]row, 0, slabRows), make([]uuid.UUID, 0, slabRows)} }

// readRows sends all rows that are stored, in the order of their keys.
func readRows(it *pebble.Iterator, read chan<- slab) error {
	s := newSlab()
	var texts []byte
	for ok := it.First(); ok; ok = it.Next() {
		key, record := it.Key()[1:], it.Value()
		value, owner, due, err := decodeRow(key, record)
		if err != nil {
			return err
		}
		n := len(key) + len(value)
		if n > cap(texts)-len(texts) {
			texts = make([]byte, 0, max(n, slabText))
		}
		at := len(texts)
		texts = append(append(texts, key...), value...)
		r := row{due: due, word: storedBit}
		r.setText(unsafe.String(&texts[at], n), len(key))
		s.rows, s.owners = append(s.rows, r), append(s.owners, owner)
		if len(s.rows) == cap(s.rows) {
			read <- s
			s = newSlab()
		}
	}
	read <- s
	return it.Error()
}

// decodeRow reads what is stored under key. The value aliases the record.
func decodeRow(key, record []byte) (value []byte, owner uuid.UUID, due int64, err error) {
	value, owner, due, err = decodeRecord(record)
	switch {
	case err != nil:
	case len(key) == 0 || len(key) > engine.MaxKey:
		err = errors.New("key is too short or too long")
	case bytes.HasPrefix(key, coldKey):
		err = errors.New("a cold row among the others")
	default:
		return value, owner, due, nil
	}
	return nil, owner, due, fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
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
