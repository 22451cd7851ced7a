package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

var (
	// ErrNotEmpty refuses a Copy into a store that has rows.
	ErrNotEmpty = errors.New("there is a state already")

	// ErrIncomplete refuses a state into which a Copy did not finish.
	ErrIncomplete = errors.New("this state is an incomplete copy of another: remove it, and copy again")
)

// A Sum identifies the content of a state: the number of its records, and a
// checksum of them.
type Sum struct {
	Hot, Cold int64
	Bytes     int64 // of keys and values
	Checksum  [sha256.Size]byte
}

const (
	// copyingKey exists as long as a copy is incomplete.
	copyingKey = "copying"

	// spreadKey exists if the state was copied from several partitions.
	spreadKey = "spread"

	copyBatch = 1 << 20 // bytes, about
)

// Copy copies a state to an empty store, and returns the sum of what it read.
// No engine may have either store open. The copy cannot be opened before
// Complete, and if Copy fails, it refuses to go on with what is left. The running clock continues from where it was last recorded. Copy
// calls progress from time to time with the number of records.
func Copy(ctx context.Context, from Reader, to Store, progress func(records int64)) (Sum, error) {
	if err := complete(to); err != nil {
		return Sum{}, err
	}
	switch err := walkAll(ctx, to, func(Space, []byte, []byte) error { return errStop }); {
	case errors.Is(err, errStop):
		return Sum{}, ErrNotEmpty
	case err != nil:
		return Sum{}, err
	}
	if err := write(to, Write{Space: Meta, Key: copyingKey, due: never}); err != nil {
		return Sum{}, err
	}
	c, s := copier{to: to}, newSummer()
	err := walkAll(ctx, from, func(space Space, key, record []byte) error {
		if n := s.add(space, key, record); n%(1<<10) == 0 {
			progress(n)
		}
		return c.add(space, key, record)
	})
	if err != nil {
		return Sum{}, err
	}
	for _, key := range []string{clockKey, spreadKey} {
		if _, err := from.Get(Meta, key, func(record []byte) error { return c.add(Meta, []byte(key), record) }); err != nil {
			return Sum{}, err
		}
	}
	if u, several := from.(Union); several && len(u) > 1 {
		c.writes = append(c.writes, Write{Space: Meta, Key: spreadKey, due: never})
	}
	err = c.flush()
	return s.done(), err
}

// Marked returns the greatest number that a mark (see [engine.Mark]) begins
// with, or 0 if there is none.
func Marked(r Reader) (greatest uint64, err error) {
	return greatest, Each(r, Hot, engine.Mark, after(engine.Mark), func(it Iterator) error {
		row, err := readRow(it)
		if err == nil && len(row.value) >= 8 {
			greatest = max(greatest, record.ReadFixed(row.value))
		}
		return err
	})
}

// LastCommit returns the time of the wall clock up to [beatEvery] before the
// last commit, or the zero time if there was none.
func LastCommit(r Reader) (time.Time, error) {
	last, _, err := lastBeat(r)
	return last.wall, err
}

// WasSpread reports whether a state was copied from several partitions. Its
// secrets then name the partitions that issued them.
func WasSpread(r Reader) (bool, error) {
	return r.Get(Meta, spreadKey, func([]byte) error { return nil })
}

// Names yields the keys of the hot rows that begin with prefix, without it.
func Names(r Reader, prefix string, yield func(name string)) error {
	return Each(r, Hot, prefix, after(prefix), func(it Iterator) error {
		yield(string(it.Key()[len(prefix):]))
		return nil
	})
}

// Value returns the value of a hot row, or "" if there is none.
func Value(r Reader, key string) (value string, err error) {
	_, err = r.Get(Hot, key, func(stored []byte) error {
		v, _, _, err := decode(stored)
		value = string(v)
		return err
	})
	return value, err
}

// Complete marks a copy as complete, so that it can be opened. The caller must
// have compared the sums.
func Complete(to Store) error {
	return write(to, Write{Space: Meta, Key: copyingKey, Delete: true})
}

// SumOf reads all rows of a store and returns their sum. It calls progress from
// time to time with the number of records.
func SumOf(ctx context.Context, store Reader, progress func(records int64)) (Sum, error) {
	s := newSummer()
	err := walkAll(ctx, store, func(space Space, key, record []byte) error {
		if _, _, _, err := decode(record); err != nil {
			return corrupt(key, err)
		}
		if n := s.add(space, key, record); n%(1<<10) == 0 {
			progress(n)
		}
		return nil
	})
	return s.done(), err
}

// Put writes a row to a store that no engine has open.
func Put(to Store, r engine.Row) error {
	return write(to, Write{Space: Hot, Key: r.Key, value: r.Value, owner: r.Owner, due: instant(r.Due)})
}

// NoteCopy gives a state that was found to be a copy the row of one, unless it has that
// already. No engine has the store open.
func NoteCopy(s Store) error {
	last, err := LastCommit(s)
	if err != nil || last.IsZero() {
		return err
	}
	noted, err := s.Get(Hot, engine.CopyKey, func([]byte) error { return nil })
	if err != nil || noted {
		return err
	}
	return Put(s, engine.CopyRow(last))
}

// complete refuses an incomplete copy.
func complete(store Store) error {
	found, err := store.Get(Meta, copyingKey, func([]byte) error { return nil })
	if err == nil && found {
		err = ErrIncomplete
	}
	return err
}

var errStop = errors.New("enough")

// walkAll visits all rows, in the order of spaces and keys.
func walkAll(ctx context.Context, r Reader, visit func(space Space, key, record []byte) error) error {
	for _, space := range []Space{Hot, Cold} {
		err := Each(r, space, "", "", func(it Iterator) error {
			record, err := it.Value()
			if err = cmp.Or(context.Cause(ctx), err); err != nil {
				return err
			}
			return visit(space, it.Key(), record)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// A copier writes records in batches.
type copier struct {
	to     Store
	writes []Write
	size   int
}

func (c *copier) add(space Space, key, record []byte) error {
	value, owner, due, err := decode(record)
	if err != nil {
		return corrupt(key, err)
	}
	c.writes = append(c.writes, Write{Space: space, Key: string(key), value: string(value), owner: owner, due: due})
	if c.size += len(key) + len(record); c.size < copyBatch {
		return nil
	}
	return c.flush()
}

func (c *copier) flush() error {
	writes := c.writes
	c.writes, c.size = nil, 0
	return write(c.to, writes...)
}

func write(to Store, writes ...Write) error {
	number, err := to.Append(Batch{Writes: writes, Disk: true})
	if err == nil {
		err = to.Wait(number, true)
	}
	return err
}

// A summer computes a Sum.
type summer struct {
	sum  Sum
	hash hash.Hash
}

func newSummer() *summer { return &summer{hash: sha256.New()} }

func (s *summer) add(space Space, key, record []byte) (n int64) {
	var head [9]byte
	head[0] = byte(space)
	binary.BigEndian.PutUint32(head[1:], uint32(len(key)))
	binary.BigEndian.PutUint32(head[5:], uint32(len(record)))
	s.hash.Write(head[:])
	s.hash.Write(key)
	s.hash.Write(record)
	s.sum.Bytes += int64(len(key) + len(record))
	if space == Cold {
		s.sum.Cold++
	} else {
		s.sum.Hot++
	}
	return s.sum.Hot + s.sum.Cold
}

func (s *summer) done() Sum {
	s.hash.Sum(s.sum.Checksum[:0])
	return s.sum
}
