package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

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

// recover fills memory from the store, on all cores.
func (e *Engine) recover(cache *pebble.Cache) error {
	if err := e.checkFormat(); err != nil {
		return err
	}
	size, err := e.db.EstimateDiskUsage([]byte{rowSpace}, []byte{rowSpace + 1})
	if err != nil {
		return err
	}
	if size > largeState {
		e.wakeCollector = restCollector()
		defer time.AfterFunc(longRest, e.wakeCollector)
	}
	// What is read now will not be read again: the cache is for cold rows.
	defer cache.Reserve(cacheSize)()
	cuts, err := e.cuts(int(min(size/leastPart, uint64(partsEach*runtime.GOMAXPROCS(0)))))
	if err != nil {
		return err
	}
	return e.load(cuts, int(size)/storedRow)
}

const (
	leastPart = 1 << 20 // bytes, about, of a part of the store that is read apart
	partsEach = 16      // for each core: the cores should all end at about the same time
	storedRow = 64      // bytes, about, of a small row in a table
	mostHint  = 512     // rows, where they may be large and few
)

// cuts gives where to cut the rows in the store into so many parts of about the
// same size: behind some of the tables.
func (e *Engine) cuts(parts int) (cuts [][]byte, err error) {
	if parts < 2 {
		return nil, nil
	}
	levels, err := e.db.SSTables()
	if err != nil {
		return nil, err
	}
	var tables []pebble.SSTableInfo
	var size uint64
	for _, t := range slices.Concat(levels...) {
		if t.Largest.UserKey[0] == rowSpace {
			tables = append(tables, t)
			size += t.Size
		}
	}
	slices.SortFunc(tables, func(a, b pebble.SSTableInfo) int { return bytes.Compare(a.Largest.UserKey, b.Largest.UserKey) })
	var n uint64
	for _, t := range tables {
		if n += t.Size; n >= size/uint64(parts) {
			cuts = append(cuts, t.Largest.UserKey)
			n = 0
		}
	}
	return cuts, nil
}

// load reads the rows that are stored, those before each cut apart, and fills the
// indexes with them. There are about so many.
func (e *Engine) load(cuts [][]byte, rows int) error {
	bounds := slices.Concat([][]byte{{rowSpace}}, cuts, [][]byte{{rowSpace + 1}})
	loaders := make([]loader, len(bounds)-1)
	errs := make([]error, len(loaders))
	var mu sync.Mutex
	hint := min(rows/len(loaders)/len(e.mem.table.parts), mostHint)
	onAllCores(len(loaders), func(i int) {
		loaders[i].mem, loaders[i].mu, loaders[i].table.hint = e.mem, &mu, hint
		errs[i] = e.loadPart(&loaders[i], bounds[i], bounds[i+1])
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	e.mem.join(loaders)
	return nil
}

func (e *Engine) loadPart(l *loader, from, to []byte) error {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	return errors.Join(l.read(it), it.Close())
}

// rowsStored gives an iterator of the rows in the store.
func (e *Engine) rowsStored() (*pebble.Iterator, error) { return e.stored(rowSpace) }

func (e *Engine) stored(space byte) (*pebble.Iterator, error) {
	return e.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
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
