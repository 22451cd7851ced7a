package pebble

import (
	"slices"
	"strings"
)

// An overlay has the writes of cold rows that may not be in the store yet, in
// commits on their way. It is guarded by Engine.mu, and what a transaction sees
// is the store, with the overlay on it, and on that its own writes.
//
// A commit's writes leave the overlay when it is known to be applied, that is
// when everybody who reads from the store from then on finds them there. That is
// before a transaction and not within it, so an iterator that was made in a
// transaction has all that the overlay has not, until the transaction ends.
// Whether it also has some of what the overlay has does not matter: that is of
// the same commits, or of later ones, and goes before.
type overlay struct {
	commits []*commit // with cold writes, in their order
	spare   coldSet   // of a commit that has gone, empty, for another
}

// get gives the last write of a cold row, and its commit.
func (o *overlay) get(key string) (*coldWrite, *commit) {
	for _, c := range slices.Backward(o.commits) {
		if w := c.cold.get(key); w != nil {
			return w, c
		}
	}
	return nil, nil
}

// add makes the writes of a transaction a part of c.
func (o *overlay) add(c *commit, writes *coldSet) {
	if n := len(o.commits); n == 0 || o.commits[n-1] != c {
		o.commits = append(o.commits, c)
		c.cold, o.spare = o.spare, coldSet{}
	}
	c.cold.take(writes)
}

// drop removes the writes of commits that are applied. Those are the first, as
// commits are applied in order.
func (o *overlay) drop() {
	for len(o.commits) > 0 && o.commits[0].applied.Load() {
		o.spare, o.commits[0].cold = o.commits[0].cold.emptied(), coldSet{}
		o.commits = slices.Delete(o.commits, 0, 1)
	}
}

// A coldWrite is the last write of a cold row in a transaction or in a commit.
type coldWrite struct {
	key   string
	value string
	gone  bool
}

// A coldSet is writes of cold rows in the order of their keys, a group for all
// keys with one head. Most are of a row that is new and comes behind all others
// of its group, so to set one is mostly to append it.
type coldSet struct {
	groups []coldGroup // by head
	n      int
	moved  uint64 // counts the changes of its shape
}

type coldGroup struct {
	head   string
	writes []coldWrite
}

const coldHead = 4 // bytes: enough to tell the kinds of rows apart

func headOf(key string) string { return key[:min(len(key), coldHead)] }

// seek gives the place of the group for a head, or where it would be.
func (s *coldSet) seek(head string) (at int, ok bool) {
	for at < len(s.groups) && s.groups[at].head < head {
		at++
	}
	return at, at < len(s.groups) && s.groups[at].head == head
}

// group gives the group for keys like key, which it makes if there is none.
func (s *coldSet) group(key string) *coldGroup {
	at, ok := s.seek(headOf(key))
	if !ok {
		s.groups = slices.Insert(s.groups, at, coldGroup{head: strings.Clone(headOf(key))})
	}
	return &s.groups[at]
}

// seek gives the place of the write of a row, or where it would be.
func (g *coldGroup) seek(key string) (at int, ok bool) {
	if n := len(g.writes); n == 0 || g.writes[n-1].key < key {
		return n, false
	}
	return slices.BinarySearchFunc(g.writes, key, func(w coldWrite, key string) int { return strings.Compare(w.key, key) })
}

func (s *coldSet) get(key string) *coldWrite {
	if s.n == 0 {
		return nil
	}
	if at, ok := s.seek(headOf(key)); ok {
		g := &s.groups[at]
		if at, ok := g.seek(key); ok {
			return &g.writes[at]
		}
	}
	return nil
}

// set puts a write in, or in the place of an earlier one of the same row.
func (s *coldSet) set(w coldWrite) {
	g := s.group(w.key)
	at, ok := g.seek(w.key)
	if ok {
		g.writes[at] = w
		return
	}
	g.writes = slices.Insert(g.writes, at, w)
	s.n++
	s.moved++
}

// take sets all writes of another set.
func (s *coldSet) take(other *coldSet) {
	for i := range other.groups {
		from := &other.groups[i]
		if len(from.writes) == 0 {
			continue
		}
		to := s.group(from.writes[0].key)
		before := len(to.writes)
		to.take(from)
		s.n += len(to.writes) - before
	}
	s.moved++
}

// take puts in the writes of another group, in their order.
func (g *coldGroup) take(other *coldGroup) {
	from, own := other.writes, false
	for i := 0; i < len(from); i++ {
		if at, ok := g.seek(from[i].key); ok {
			g.writes[at] = from[i]
			if !own {
				from, own = slices.Clone(from), true
			}
			from = slices.Delete(from, i, i+1)
			i--
		} else if at == len(g.writes) {
			break // it comes behind all there are, and so do the others
		}
	}
	i, j := len(g.writes)-1, len(from)-1
	g.writes = append(g.writes, from...)
	for at := len(g.writes) - 1; j >= 0; at-- { // from the end, where there is room
		if i >= 0 && g.writes[i].key > from[j].key {
			g.writes[at] = g.writes[i]
			i--
		} else {
			g.writes[at] = from[j]
			j--
		}
	}
}

// next gives the first write whose key starts with prefix and is not less than
// at, or is greater than that if past.
func (s *coldSet) next(prefix, at string, past bool) *coldWrite {
	if s.n == 0 {
		return nil
	}
	for i, ok := s.seek(headOf(at)); i < len(s.groups); i++ {
		g, from := &s.groups[i], 0
		if ok { // the group in which it would be, and else a later one
			var found bool
			if from, found = g.seek(at); found && past {
				from++
			}
			ok = false
		}
		if from < len(g.writes) {
			if w := &g.writes[from]; strings.HasPrefix(w.key, prefix) {
				return w
			}
			return nil
		}
	}
	return nil
}

// all yields the writes in order.
func (s *coldSet) all(yield func(*coldWrite) bool) {
	for i := range s.groups {
		for j := range s.groups[i].writes {
			if !yield(&s.groups[i].writes[j]) {
				return
			}
		}
	}
}

// emptied gives the set without its writes, for others. It lets go of a large one.
func (s *coldSet) emptied() coldSet {
	if s.n > 1<<12 || len(s.groups) > 64 {
		return coldSet{}
	}
	for i := range s.groups {
		g := &s.groups[i]
		g.writes = reuse(g.writes)
	}
	return coldSet{groups: s.groups}
}
