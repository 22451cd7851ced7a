package memory

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/engine"
)

// A Union reads the states of several partitions as one, for [Copy]. Each row
// belongs to one of them, except marks, of which the greatest counts, and rows
// that are the same in all of them.
//
// The partitions have running clocks of their own. The union has the earliest of
// them, so that nothing becomes due too early.
type Union []Store

var _ Reader = Union(nil)

func (u Union) Get(space Space, key string, read func(value []byte) error) (found bool, err error) {
	var all recordsOf
	for _, s := range u {
		if _, err := s.Get(space, key, func(value []byte) error { return all.add(space, key, value) }); err != nil {
			return false, err
		}
	}
	if all == nil {
		return false, nil
	}
	return true, read(all)
}

// recordsOf is the record under a key, of those that the partitions have.
type recordsOf []byte

func (r *recordsOf) add(space Space, key string, record []byte) error {
	switch {
	case *r == nil:
		*r = bytes.Clone(record)
	case bytes.Equal(*r, record):
	case space == Meta && key == clockKey:
		its, err := decodeBeat(record)
		earliest, otherErr := decodeBeat(*r)
		if err = cmp.Or(err, otherErr); err != nil {
			return fmt.Errorf("the clock of a partition: %w", err)
		}
		if its.now.Before(earliest.now) {
			*r = bytes.Clone(record)
		}
	case strings.HasPrefix(key, engine.Mark):
		if len(record) != len(*r) {
			return fmt.Errorf("%w: the partitions have different forms of %q", engine.ErrCorrupt, key)
		}
		if bytes.Compare(record, *r) > 0 { // it is a number of a fixed length
			*r = bytes.Clone(record)
		}
	default:
		return fmt.Errorf("%w: several partitions have %q", engine.ErrCorrupt, key)
	}
	return nil
}

func (u Union) Close() (err error) {
	for _, s := range u {
		err = errors.Join(err, s.Close())
	}
	return err
}

func (u Union) Iterate(space Space, from, end string) (Iterator, error) {
	it := &unionIterator{space: space}
	for _, s := range u {
		next, err := s.Iterate(space, from, end)
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		it.all, it.at = append(it.all, next), append(it.at, next.Next())
	}
	return it, nil
}

// A unionIterator moves several iterators together.
type unionIterator struct {
	space Space
	all   []Iterator
	at    []bool // whether each is at a record
	key   []byte
	value recordsOf
	err   error
}

func (it *unionIterator) Next() bool {
	for i, one := range it.all {
		if it.at[i] && bytes.Equal(one.Key(), it.key) {
			it.at[i] = one.Next()
		}
	}
	first := -1 // of the iterators, the one at the smallest key
	for i, one := range it.all {
		if it.err = one.Err(); it.err != nil {
			return false
		}
		if it.at[i] && (first < 0 || bytes.Compare(one.Key(), it.all[first].Key()) < 0) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	it.key, it.value = bytes.Clone(it.all[first].Key()), nil
	for i, one := range it.all {
		if !it.at[i] || !bytes.Equal(one.Key(), it.key) {
			continue
		}
		value, err := one.Value()
		if err == nil {
			err = it.value.add(it.space, string(it.key), value)
		}
		if it.err = err; err != nil {
			return false
		}
	}
	return true
}

func (it *unionIterator) Key() []byte            { return it.key }
func (it *unionIterator) Value() ([]byte, error) { return it.value, nil }
func (it *unionIterator) Err() error             { return it.err }

func (it *unionIterator) Close() (err error) {
	for _, one := range it.all {
		err = errors.Join(err, one.Close())
	}
	return err
}
