package pebble

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// An order is the rows in the order of their keys, in leaves of some dozens. A
// leaf is found by its low key, which it has itself, so the way there does not
// lead through as many rows, each of them somewhere else in memory, as it
// would in a tree of rows.
type order struct {
	first  *leaf
	leaves *btree.BTreeG[*leaf]
	n      int
	moved  uint64 // counts the changes of shape: a walk that finds its own still has its place
	probe  leaf   // what a lookup compares with
}

// A leaf fills 512 bytes.
type leaf struct {
	low  string // no key in it is less, and every one in those before it is
	next *leaf
	n    int
	rows [60]*row
}

const (
	fullLeaf   = len(leaf{}.rows)
	loadedLeaf = fullLeaf * 3 / 4 // leaves room, when many are loaded, for some to come between
	thinLeaf   = fullLeaf / 4     // joins its neighbour
)

func newOrder() *order {
	o := &order{
		first:  &leaf{},
		leaves: btree.NewBTreeGOptions(func(a, b *leaf) bool { return a.low < b.low }, btree.Options{NoLocks: true}),
	}
	o.leaves.Set(o.first)
	return o
}

// leaf gives the leaf in which key is, if it is anywhere.
func (o *order) leaf(key string) (found *leaf) {
	o.probe.low = key
	o.leaves.Descend(&o.probe, func(l *leaf) bool { found = l; return false })
	o.probe.low = ""
	return found
}

// seek gives the place of the first row whose key is not less than key. It may
// be the end of a leaf.
func (o *order) seek(key string) (*leaf, int) {
	l := o.leaf(key)
	i, _ := slices.BinarySearchFunc(l.rows[:l.n], key, func(r *row, key string) int { return strings.Compare(r.key(), key) })
	return l, i
}

// insert adds r, whose key is not in use.
func (o *order) insert(r *row) {
	o.moved++
	o.n++
	l, i := o.seek(r.key())
	if l.n < fullLeaf {
		l.insert(i, r)
		return
	}
	// A row that is the last of all begins a leaf: whoever appends, fills it.
	at := fullLeaf / 2
	if i == fullLeaf && l.next == nil {
		at = fullLeaf
	}
	next := &leaf{next: l.next}
	next.n = copy(next.rows[:], l.rows[at:])
	clear(l.rows[at:])
	l.n, l.next = at, next
	if i > at || next.n == 0 {
		next.insert(i-at, r)
	} else {
		l.insert(i, r)
	}
	next.low = strings.Clone(next.rows[0].key())
	o.leaves.Set(next)
}

func (l *leaf) insert(i int, r *row) {
	copy(l.rows[i+1:], l.rows[i:l.n])
	l.rows[i] = r
	l.n++
}

func (o *order) remove(r *row) {
	o.moved++
	o.n--
	l := o.leaf(r.key())
	i := slices.Index(l.rows[:l.n], r)
	copy(l.rows[i:], l.rows[i+1:l.n])
	l.n--
	l.rows[l.n] = nil
	next := l.next
	if next != nil && (l.n == 0 || l.n < thinLeaf && l.n+next.n <= loadedLeaf) {
		l.n += copy(l.rows[l.n:], next.rows[:next.n])
		l.next = next.next
		o.leaves.Delete(next)
	}
}

// An orderLoader fills an order with rows that come as they are to stand.
type orderLoader struct {
	o *order
	l *leaf
}

func (b *orderLoader) add(r *row) {
	if b.l == nil {
		b.l = b.o.first
	}
	if b.l.n == loadedLeaf {
		next := &leaf{low: strings.Clone(r.key())}
		b.l.next, b.l = next, next
		b.o.leaves.Load(next)
	}
	b.l.rows[b.l.n] = r
	b.l.n++
	b.o.n++
}

// scan yields the rows whose key starts with prefix and is not less than from.
func (o *order) scan(prefix, from string, yield func(*row) bool) {
	for l, i := o.seek(from); ; {
		for i == l.n {
			if l = l.next; l == nil {
				return
			}
			i = 0
		}
		r := l.rows[i]
		key, moved := r.key(), o.moved
		if !strings.HasPrefix(key, prefix) || !yield(r) {
			return
		}
		if i++; moved != o.moved {
			if l, i = o.seek(key); i < l.n && l.rows[i].key() == key {
				i++
			}
		}
	}
}

// all yields every row; nothing may be changed meanwhile.
func (o *order) all(yield func(*row) bool) {
	for l := o.first; l != nil; l = l.next {
		for _, r := range l.rows[:l.n] {
			if !yield(r) {
				return
			}
		}
	}
}
