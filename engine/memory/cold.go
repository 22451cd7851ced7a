package memory

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/btree"

	"github.com/leasehold/leasehold/engine"
)

func isCold(key string) bool { return strings.HasPrefix(key, engine.Cold) }

// A coldWrite is the last write of a cold row that may not have reached the
// store.
type coldWrite struct {
	value string
	gone  bool
}

type coldRows = btree.Map[string, coldWrite]

func (w coldWrite) public(key string) (engine.Row, bool) {
	if w.gone {
		return engine.Row{}, false
	}
	return engine.Row{Key: key, Value: w.value}, true
}

// readCold returns the cold row that a store has under key.
func readCold(store Reader, key string) (r engine.Row, found bool, err error) {
	found, err = store.Get(Cold, key, func(value []byte) (err error) {
		r, err = decodeCold([]byte(key), value)
		return err
	})
	if err != nil {
		return engine.Row{}, false, readError(key, err)
	}
	return r, found, nil
}

// decodeCold decodes a cold row.
func decodeCold(key, record []byte) (engine.Row, error) {
	value, owner, due, err := decode(record)
	if err == nil && (owner != uuid.Nil || due != never) {
		err = fmt.Errorf("a cold record with an owner or a due time")
	}
	if err != nil {
		return engine.Row{}, corrupt(key, err)
	}
	k, v := together(key, value)
	return engine.Row{Key: k, Value: v}, nil
}

func corrupt[K string | []byte](key K, err error) error {
	return fmt.Errorf("%w: key %q: %w", engine.ErrCorrupt, key, err)
}

func readError(key string, err error) error {
	return fmt.Errorf("engine: read %q: %w", key, err)
}

// after returns the least key greater than all keys that start with prefix, or
// "" if there is none.
func after(prefix string) string {
	n := len(prefix)
	for n > 0 && prefix[n-1] == 0xff {
		n--
	}
	if n == 0 {
		return ""
	}
	return prefix[:n-1] + string([]byte{prefix[n-1] + 1})
}

// scanCold merges the pending cold writes with the records of the store.
func (t *tx) scanCold(prefix, from string, yield func(engine.Row) bool) {
	t.live()
	it, err := t.store.Iterate(Cold, from, after(prefix))
	if err != nil {
		t.poison(readError(from, err))
		return
	}
	defer func() { _ = it.Close() }() // read errors are reported below
	last := ""                        // the key that was yielded last
	pending := t.cold.Iter()
	written, changes := pending.Seek(from), len(t.coldUndo)
	for stored := it.Next(); ; {
		if !stored && it.Err() != nil {
			t.poison(readError(cmp.Or(last, from), it.Err()))
			return
		}
		if changes != len(t.coldUndo) {
			written, changes = pending.Seek(last+"\x00"), len(t.coldUndo)
		}
		written = written && strings.HasPrefix(pending.Key(), prefix)
		switch {
		case !stored && !written:
			return
		case stored && (!written || string(it.Key()) < pending.Key()):
			r, err := storedCold(it)
			last = string(it.Key())
			switch {
			case errors.Is(err, engine.ErrCorrupt):
				t.e.leaveOut(last, err)
			case err != nil:
				t.poison(err)
				return
			case !yield(r):
				return
			}
			stored = it.Next()
		default:
			last = pending.Key()
			if stored && string(it.Key()) == last {
				stored = it.Next()
			}
			r, ok := pending.Value().public(last)
			if written = pending.Next(); ok && !yield(r) {
				return
			}
		}
	}
}

// leaveOut reports, once for each key, that scans skip a row that cannot be
// read. The other rows of a scan are not affected.
func (e *Engine) leaveOut(key string, err error) {
	if _, told := e.leftOut.LoadOrStore(key, true); !told {
		e.logf("%v; it is left out of what is listed and claimed", err)
	}
}

// storedCold decodes the cold row at an iterator.
func storedCold(it Iterator) (engine.Row, error) {
	record, err := it.Value()
	if err != nil {
		return engine.Row{}, readError(string(it.Key()), err)
	}
	return decodeCold(it.Key(), record)
}
