package pebble

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
)

// fill gives every row its place, unless they have one, with what is due before
// until in front.
func (d *dueOrder) fill(until int64) {
	if d.front != nil {
		return
	}
	d.clear(horizonAt(until))
	var leaves []*leaf[string, *row]
	for l := d.rows.first; l != nil; l = l.next {
		leaves = append(leaves, l)
	}
	fillers := make([]dueFiller, runtime.GOMAXPROCS(0))
	share := len(leaves)/len(fillers) + 1
	var wg sync.WaitGroup
	for i := range fillers {
		fillers[i] = dueFiller{horizon: d.horizon, rings: make(map[int64]*row)}
		mine := leaves[min(i*share, len(leaves)):min((i+1)*share, len(leaves))]
		wg.Go(func() { fillers[i].fill(mine) })
	}
	wg.Wait()
	var soon []*row
	for _, f := range fillers {
		soon = append(soon, f.soon...)
		for begin, anchor := range f.rings {
			d.ring(begin).join(anchor)
		}
	}
	d.fillFront(soon)
}

// A dueFiller finds the places of the rows of some leaves.
type dueFiller struct {
	horizon int64
	soon    []*row // for the front, in the order of their keys
	rings   map[int64]*row
	last    *row // the anchor of the ring that was last met: mostly of the next row as well
}

func (f *dueFiller) fill(leaves []*leaf[string, *row]) {
	for _, l := range leaves {
		for _, r := range l.items[:l.n] {
			r.left, r.right = nil, nil
			switch {
			case r.due == never:
			case r.due < f.horizon:
				f.soon = append(f.soon, r)
			default:
				f.ring(ringOf(r.due)).link(r)
			}
		}
	}
}

func (f *dueFiller) ring(begin int64) *row {
	if f.last == nil || f.last.due != begin {
		if f.last = f.rings[begin]; f.last == nil {
			f.last = newAnchor(begin)
			f.rings[begin] = f.last
		}
	}
	return f.last
}

// fillFront puts rows that come in the order of their keys into an empty front.
func (d *dueOrder) fillFront(rows []*row) {
	// Their place tells which of two is first without a look at them.
	type place struct {
		due int64
		at  int
	}
	places := make([]place, len(rows))
	for at, r := range rows {
		places[at] = place{r.due, at}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.due, b.due), a.at-b.at) })
	load := orderLoader[dueRow, dueRow]{o: d.front}
	for _, p := range places {
		load.add(dueRow{p.due, rows[p.at]})
	}
	d.front.load(load.leaves)
}
