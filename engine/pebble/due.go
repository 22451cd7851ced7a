package pebble

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"
)

// A dueOrder is the rows that have a due time, by due and key. It is filled when
// it is first asked for anything: what is loaded at an Open, and revised after
// it, need not be sorted twice.
type dueOrder struct {
	tree  *btree.BTreeG[dueRow] // nil until it is asked for
	rows  *order                // what it is filled from
	moved uint64                // as in an order
	probe row                   // what a lookup compares with
}

// A dueRow has the time beside the row, so that most are compared without a look
// at the rows.
type dueRow struct {
	due int64
	r   *row
}

func dueLess(a, b dueRow) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.r.key() < b.r.key()
}

// filled gives the tree.
func (d *dueOrder) filled() *btree.BTreeG[dueRow] {
	if d.tree != nil {
		return d.tree
	}
	d.tree = btree.NewBTreeGOptions(dueLess, btree.Options{NoLocks: true})
	rows := make([]*row, 0, d.rows.n)
	for r := range d.rows.all {
		if r.due != never {
			rows = append(rows, r)
		}
	}
	// They come in the order of their keys, so their place tells which of two
	// is first without a look at them.
	type place struct {
		due int64
		at  int
	}
	places := make([]place, len(rows))
	for at, r := range rows {
		places[at] = place{r.due, at}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.due, b.due), a.at-b.at) })
	for _, p := range places {
		d.tree.Load(dueRow{p.due, rows[p.at]})
	}
	return d.tree
}

// refill forgets the order, after rows have become due at other times.
func (d *dueOrder) refill() {
	d.tree = nil
	d.moved++
}

func (d *dueOrder) insert(r *row) {
	if r.due != never {
		d.filled().Set(dueRow{r.due, r})
		d.moved++
	}
}

func (d *dueOrder) remove(r *row) {
	if r.due != never {
		d.filled().Delete(dueRow{r.due, r})
		d.moved++
	}
}

// earliest gives the first due time there is, or never.
func (d *dueOrder) earliest() int64 {
	if first, ok := d.filled().Min(); ok {
		return first.due
	}
	return never
}

// before yields the rows due before now, earliest first.
func (d *dueOrder) before(now int64, yield func(*row) bool) {
	it := d.filled().Iter()
	for ok := it.First(); ok; {
		at := it.Item()
		if at.due >= now {
			return
		}
		key, moved := at.r.key(), d.moved
		if !yield(at.r) {
			return
		}
		if moved == d.moved {
			ok = it.Next()
			continue
		}
		// The row may have gone, or be due later: what follows is what is
		// due after the instant it was reached at.
		d.probe.setText(key, len(key))
		probe := dueRow{at.due, &d.probe}
		it = d.filled().Iter()
		if ok = it.Seek(probe); ok && !dueLess(probe, it.Item()) {
			ok = it.Next()
		}
	}
}
