package pebble

import (
	"cmp"
	"math"
	"slices"
)

// A dueOrder is the rows that have a due time, by due and key. It is filled when
// it is first asked for anything: what is loaded at an Open, and revised after
// it, need not be sorted twice.
type dueOrder struct {
	rows   *order[string, *row]   // what it is filled from
	sorted *order[dueRow, dueRow] // nil until it is asked for
}

// A dueRow has the time beside the row, so that most are compared without a look
// at the rows. The least of all has no row.
type dueRow struct {
	due int64
	r   *row
}

func (d dueRow) key() string {
	if d.r == nil {
		return ""
	}
	return d.r.key()
}

func compareDue(a, b dueRow) int {
	if a.due != b.due {
		return cmp.Compare(a.due, b.due)
	}
	return cmp.Compare(a.key(), b.key())
}

// filled gives the order.
func (d *dueOrder) filled() *order[dueRow, dueRow] {
	if d.sorted != nil {
		return d.sorted
	}
	itself := func(r dueRow) dueRow { return r } // a leaf may hold on to a row that has gone
	d.sorted = newOrder(dueRow{due: math.MinInt64}, itself, compareDue, itself)
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
	load := orderLoader[dueRow, dueRow]{o: d.sorted}
	for _, p := range places {
		load.add(dueRow{p.due, rows[p.at]})
	}
	return d.sorted
}

// refill forgets the order, after rows have become due at other times.
func (d *dueOrder) refill() { d.sorted = nil }

func (d *dueOrder) insert(r *row) {
	if r.due == never {
		return
	}
	if o := d.sorted; o != nil {
		o.insert(dueRow{r.due, r})
	}
}

func (d *dueOrder) remove(r *row) {
	if r.due == never {
		return
	}
	if o := d.sorted; o != nil {
		o.remove(dueRow{r.due, r})
	}
}

// earliest gives the first due time there is, or never.
func (d *dueOrder) earliest() int64 {
	if first, ok := d.filled().min(); ok {
		return first.due
	}
	return never
}

// before yields the rows due before now, earliest first.
func (d *dueOrder) before(now int64, yield func(*row) bool) {
	for r := range d.filled().all {
		if r.due >= now || !yield(r.r) {
			return
		}
	}
}
