package queue

import (
	"slices"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A front is what stands next in a ready line, in memory, so that not every
// claim has to seek on the disk. It has all entries from the cursor to its last
// one. A claim takes the first of them, and the cursor passes it; what else comes
// or goes there undoes the front, and the next claim makes another.
//
// Only a line that is longer than a front has one. So all fronts together take a
// small part of what their lines take on the disk, and those of a long line no
// more than of a short one.
const (
	frontTasks = 32
	frontBytes = 8 << 10 // or one task more than that
)

func (in index) frontKey() string { return frontPrefix + in.prefix[len(engine.Cold):] }

// first is the first entry of a line that is long enough for a front.
func (in index) first(tx Tx) (first engine.Row, ok bool) {
	from := in.cursor(tx)
	if front, ok := tx.Get(in.frontKey()); ok {
		entries, last := openFront(front)
		r := record.Read(entries)
		for range frontTasks {
			tail, value := r.Text(), r.Text()
			if tail < from {
				continue
			}
			if tail == last {
				tx.Delete(front.Key) // of no more use
			}
			return engine.Row{Key: in.prefix + tail, Value: value}, true
		}
	}
	w := record.New(frontTasks * 160)
	last, n, size := "", 0, 0
	for row := range tx.ScanFrom(in.prefix, in.prefix+from) {
		if n == 0 {
			first = row
		}
		last = in.tail(row)
		w.Text(last)
		w.Text(row.Value)
		n, size = n+1, size+len(row.Value)
		if n == frontTasks || size > frontBytes {
			break
		}
	}
	if n > 1 {
		w.Text(last)
		tx.Touch(engine.Row{Key: in.frontKey(), Value: w.String()})
	}
	return first, n > 0
}

// openFront gives the entries of a front, each its tail and its value, and the
// tail of the last.
func openFront(row engine.Row) (entries, last string) {
	const size = 1 + 8 // a place, as a text
	at := len(row.Value) - size
	if at < 0 {
		panic(corrupt(row.Key, errEntry))
	}
	return row.Value[:at], row.Value[at+1:]
}

// front finds that a front has what stands in its line.
func (c *checker) front(row engine.Row) {
	in := index{engine.Cold + row.Key[len(frontPrefix):]}
	entries, last := openFront(row)
	var front, line []engine.Row
	for r := record.Read(entries); !r.Done(); {
		tail := r.Text()
		if tail == "" {
			panic(corrupt(row.Key, errEntry))
		}
		if entry := (engine.Row{Key: in.prefix + tail, Value: r.Text()}); tail >= in.cursor(c.tx) {
			front = append(front, entry)
		}
	}
	for entry := range in.entries(c.tx) {
		if in.tail(entry) > last {
			break
		}
		line = append(line, entry)
	}
	if !slices.Equal(front, line) {
		c.fault("front %q is not what stands in the line", row.Key)
	}
}
