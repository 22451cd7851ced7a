package pebble

import (
	"cmp"
	"math"
	"slices"
)

// A dueOrder is the rows that have a due time. Nearly all of a large state's are
// put off long before that time comes, as leases are when they are renewed, so
// only those that are due soon are in order, in front, by due and key. The others
// are in rings, one for each second or so, in no order: a row is moved from one
// ring to another by a few pointers.
//
// It is filled when it is first asked for anything: what is loaded at an Open,
// and revised after it, need not find its place twice.
type dueOrder struct {
	rows  *order[string, *row]   // what it is filled from
	front *order[dueRow, dueRow] // nil until it is filled
	rings *order[int64, *row]    // their anchors: each is due when its second begins

	// horizon is where the rings begin: what is due before goes in front. The
	// ring before it, if there is one, is being drawn.
	horizon int64
}

const (
	// drawAhead is how long before a ring begins it is drawn into the front.
	drawAhead = 2 * ringWidth
	// drawStep is how many rows of it are, while the lock is held: a million
	// leases may be due at one instant, a ttl after a restart.
	drawStep = 1024
)

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

func itself[T any](v T) T { return v }

func (d *dueOrder) clear(horizon int64) {
	d.front = newOrder(dueRow{due: math.MinInt64}, itself, compareDue, itself) // a leaf may hold on to a row that has gone
	d.rings = newOrder(math.MinInt64, func(anchor *row) int64 { return anchor.due }, cmp.Compare[int64], itself)
	d.horizon = horizon
}

// refill forgets the order, after rows have become due at other times.
func (d *dueOrder) refill() { d.front, d.rings = nil, nil }

func (d *dueOrder) insert(r *row) {
	switch {
	case r.due == never || d.front == nil:
	case r.due < d.horizon:
		d.front.insert(dueRow{r.due, r})
	default:
		d.ring(ringOf(r.due)).link(r)
	}
}

func (d *dueOrder) remove(r *row) {
	switch {
	case r.due == never || d.front == nil:
	case r.right == nil:
		d.front.remove(dueRow{r.due, r})
	default:
		if anchor := r.unlinkRing(); anchor != nil {
			d.rings.remove(anchor)
		}
	}
}

// move is a removal and an insertion with another time.
func (d *dueOrder) move(r *row, due int64) {
	if r.right != nil && due != never && ringOf(r.due) == ringOf(due) {
		r.due = due
		return
	}
	d.remove(r)
	r.due = due
	d.insert(r)
}

// ring gives the anchor of the ring that begins at begin.
func (d *dueOrder) ring(begin int64) *row {
	l, i := d.rings.seek(begin)
	if i < l.n && l.items[i].due == begin {
		return l.items[i]
	}
	anchor := newAnchor(begin)
	d.rings.insert(anchor)
	return anchor
}

// draw puts the rows that are due before until in front, but no more than most
// of those that are not, and reports whether that was all.
func (d *dueOrder) draw(until int64, most int) (all bool) {
	d.fill(until)
	for {
		anchor, ok := d.rings.min()
		if !ok || anchor.due >= until {
			d.horizon = max(d.horizon, horizonAt(until))
			return true
		}
		if most == 0 {
			return false
		}
		d.horizon = max(d.horizon, anchor.due+ringWidth)
		rows := make([]dueRow, 0, min(most, drawStep))
		for r := anchor.right; r != anchor && len(rows) < cap(rows); r = r.right {
			rows = append(rows, dueRow{r.due, r})
		}
		most -= len(rows)
		slices.SortFunc(rows, compareDue) // so that one comes near the other
		for _, r := range rows {
			d.remove(r.r)
			d.front.insert(r)
		}
	}
}

// first gives the first due time in front, or never. That is the first of all
// when what is due before has been drawn.
func (d *dueOrder) first() int64 {
	if first, ok := d.front.min(); ok {
		return first.due
	}
	return never
}

// nextDraw gives when there is a ring to be drawn, or never.
func (d *dueOrder) nextDraw() int64 {
	if anchor, ok := d.rings.min(); ok {
		return anchor.due - drawAhead
	}
	return never
}

// before yields the rows due before now, earliest first.
func (d *dueOrder) before(now int64, yield func(*row) bool) {
	d.draw(now, math.MaxInt)
	for r := range d.front.all {
		if r.due >= now || !yield(r.r) {
			return
		}
	}
}
