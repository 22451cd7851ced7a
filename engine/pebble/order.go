package pebble

import (
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// An order is items in the order of their keys, in leaves of some dozens. A leaf
// is found by its low key, which it has itself, so the way there does not lead
// through as many rows, each of them somewhere else in memory, as it would in a
// tree of rows.
type order[K any, E comparable] struct {
	key     func(E) K
	compare func(a, b K) int
	own     func(K) K // a key that does not hold on to its item's memory

	first  *leaf[K, E]
	leaves *btree.BTreeG[*leaf[K, E]]
	n      int
	moved  uint64     // counts the changes of shape: a walk that finds its own still has its place
	probe  leaf[K, E] // what a lookup compares with
}

// A leaf of rows fills 512 bytes, and one of due rows nearly 1024.
type leaf[K any, E comparable] struct {
	low   K // no key in it is less, and every one in those before it is
	next  *leaf[K, E]
	n     int
	items [fullLeaf]E
}

const (
	fullLeaf   = 60
	loadedLeaf = fullLeaf * 3 / 4 // leaves room, when many are loaded, for some to come between
	thinLeaf   = fullLeaf / 4     // joins its neighbour
)

// rowsByKey is all rows.
func rowsByKey() *order[string, *row] {
	return newOrder("", (*row).key, strings.Compare, strings.Clone)
}

// newOrder gives an empty order, whose keys are never less than least.
func newOrder[K any, E comparable](least K, key func(E) K, compare func(a, b K) int, own func(K) K) *order[K, E] {
	o := &order[K, E]{key: key, compare: compare, own: own, first: &leaf[K, E]{low: least}}
	less := func(a, b *leaf[K, E]) bool { return compare(a.low, b.low) < 0 }
	o.leaves = btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
	o.leaves.Set(o.first)
	return o
}

// leaf gives the leaf in which key is, if it is anywhere.
func (o *order[K, E]) leaf(key K) (found *leaf[K, E]) {
	o.probe.low = key
	o.leaves.Descend(&o.probe, func(l *leaf[K, E]) bool { found = l; return false })
	var zero K
	o.probe.low = zero
	return found
}

// seek gives the place of the first item whose key is not less than key. It may
// be the end of a leaf.
func (o *order[K, E]) seek(key K) (*leaf[K, E], int) {
	l := o.leaf(key)
	i, _ := slices.BinarySearchFunc(l.items[:l.n], key, func(e E, key K) int { return o.compare(o.key(e), key) })
	return l, i
}

// insert adds an item whose key is not in use.
func (o *order[K, E]) insert(e E) {
	o.moved++
	o.n++
	l, i := o.seek(o.key(e))
	if l.n < fullLeaf {
		l.insert(i, e)
		return
	}
	// An item that is the last of all begins a leaf: whoever appends, fills it.
	at := fullLeaf / 2
	if i == fullLeaf && l.next == nil {
		at = fullLeaf
	}
	next := &leaf[K, E]{next: l.next}
	next.n = copy(next.items[:], l.items[at:])
	clear(l.items[at:])
	l.n, l.next = at, next
	if i > at || next.n == 0 {
		next.insert(i-at, e)
	} else {
		l.insert(i, e)
	}
	next.low = o.own(o.key(next.items[0]))
	o.leaves.Set(next)
}

func (l *leaf[K, E]) insert(i int, e E) {
	copy(l.items[i+1:], l.items[i:l.n])
	l.items[i] = e
	l.n++
}

func (o *order[K, E]) remove(e E) {
	l := o.leaf(o.key(e))
	i := slices.Index(l.items[:l.n], e)
	if i < 0 {
		return
	}
	o.moved++
	o.n--
	copy(l.items[i:], l.items[i+1:l.n])
	l.n--
	clear(l.items[l.n : l.n+1])
	next := l.next
	if next != nil && (l.n == 0 || l.n < thinLeaf && l.n+next.n <= loadedLeaf) {
		l.n += copy(l.items[l.n:], next.items[:next.n])
		l.next = next.next
		o.leaves.Delete(next)
	}
}

// min gives the first item.
func (o *order[K, E]) min() (e E, ok bool) {
	for l := o.first; l != nil; l = l.next {
		if l.n > 0 {
			return l.items[0], true
		}
	}
	return e, false
}

// from yields the items whose key is not less than key. The body may change the
// order in any way.
func (o *order[K, E]) from(key K) iter.Seq[E] {
	return func(yield func(E) bool) {
		l, i := o.seek(key)
		o.walk(l, i, yield)
	}
}

// all yields every item, as from does.
func (o *order[K, E]) all(yield func(E) bool) { o.walk(o.first, 0, yield) }

func (o *order[K, E]) walk(l *leaf[K, E], i int, yield func(E) bool) {
	for {
		for i == l.n {
			if l = l.next; l == nil {
				return
			}
			i = 0
		}
		e := l.items[i]
		key, moved := o.key(e), o.moved
		if !yield(e) {
			return
		}
		if i++; moved != o.moved {
			if l, i = o.seek(key); i < l.n && o.compare(o.key(l.items[i]), key) == 0 {
				i++
			}
		}
	}
}

// An orderLoader makes leaves of items that come as they are to stand.
type orderLoader[K any, E comparable] struct {
	o      *order[K, E]
	leaves []*leaf[K, E]
}

func (b *orderLoader[K, E]) add(e E) {
	n := len(b.leaves)
	if n == 0 || b.leaves[n-1].n == loadedLeaf {
		b.leaves = append(b.leaves, &leaf[K, E]{low: b.o.own(b.o.key(e))})
		n++
	}
	l := b.leaves[n-1]
	l.items[l.n] = e
	l.n++
}

// load puts leaves into an order that has none, or behind those loaded before.
func (o *order[K, E]) load(leaves []*leaf[K, E]) {
	last, _ := o.leaves.Max()
	for _, l := range leaves {
		if o.n == 0 { // instead of the first, which is empty
			l.low, o.first = last.low, l
		} else {
			last.next = l
		}
		o.leaves.Load(l)
		o.n += l.n
		last = l
	}
}
