package pebble

import (
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/btree"
)

// A memory is the working set: every row, and the indexes over them. It is
// guarded by Engine.mu.
type memory struct {
	byKey  map[string]*row
	rows   *btree.BTreeG[*row] // in the order of their keys
	due    *btree.BTreeG[*row] // those that have a due time, by due and key
	owners map[uuid.UUID]*owner

	// rowsMoved and dueMoved count the changes of shape of the trees: an
	// iterator that finds its own still has its place, else it seeks anew.
	rowsMoved, dueMoved uint64

	cursors []*cursor // of the owner lists that are being walked
	probe   row       // what a lookup compares with
}

// A cursor is a place in an owner's list. Unlinking the row it stands on
// moves it on, so a list may change in any way while it is walked.
type cursor struct{ next *row }

func keyLess(a, b *row) bool { return a.key < b.key }

func dueLess(a, b *row) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.key < b.key
}

func newMemory() *memory {
	opts := btree.Options{NoLocks: true}
	return &memory{
		byKey:  make(map[string]*row),
		rows:   btree.NewBTreeGOptions(keyLess, opts),
		due:    btree.NewBTreeGOptions(dueLess, opts),
		owners: make(map[uuid.UUID]*owner),
	}
}

func (m *memory) get(key string) *row { return m.byKey[key] }

// insert adds r, whose key is not in use, and links it to owner.
func (m *memory) insert(r *row, id uuid.UUID) {
	m.byKey[r.key] = r
	m.rows.Set(r)
	m.rowsMoved++
	m.link(r, id)
	if r.due != never {
		m.due.Set(r)
		m.dueMoved++
	}
}

// remove takes r out and leaves its fields but the links as they are.
func (m *memory) remove(r *row) {
	delete(m.byKey, r.key)
	m.rows.Delete(r)
	m.rowsMoved++
	m.unlink(r)
	if r.due != never {
		m.due.Delete(r)
		m.dueMoved++
	}
}

func (m *memory) setOwner(r *row, id uuid.UUID) {
	if r.ownerID() != id {
		m.unlink(r)
		m.link(r, id)
	}
}

func (m *memory) setDue(r *row, due int64) {
	if r.due == due {
		return
	}
	if r.due != never {
		m.due.Delete(r)
	}
	r.due = due
	if r.due != never {
		m.due.Set(r)
	}
	m.dueMoved++
}

func (r *row) ownerID() uuid.UUID {
	if r.owner == nil {
		return uuid.Nil
	}
	return r.owner.id
}

// link adds r at the head of id's list, where a walk under way does not meet
// it: a walk whose body adds rows ends.
func (m *memory) link(r *row, id uuid.UUID) {
	if id == uuid.Nil {
		return
	}
	o := m.owners[id]
	if o == nil {
		o = &owner{id: id}
		m.owners[id] = o
	}
	r.owner, r.next = o, o.head
	if o.head != nil {
		o.head.prev = r
	}
	o.head = r
}

func (m *memory) unlink(r *row) {
	o := r.owner
	if o == nil {
		return
	}
	for _, c := range m.cursors {
		if c.next == r {
			c.next = r.next
		}
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		o.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.owner, r.prev, r.next = nil, nil, nil
	if o.head == nil {
		delete(m.owners, o.id)
	}
}

// earliest gives the first due time there is, or never.
func (m *memory) earliest() int64 {
	if r, ok := m.due.Min(); ok {
		return r.due
	}
	return never
}

// scan yields the rows whose key starts with prefix and is not less than from.
func (m *memory) scan(prefix, from string, yield func(*row) bool) {
	it := m.rows.Iter()
	m.probe.key = from
	for ok := it.Seek(&m.probe); ok; {
		r := it.Item()
		if !strings.HasPrefix(r.key, prefix) {
			return
		}
		moved := m.rowsMoved
		if !yield(r) {
			return
		}
		if moved == m.rowsMoved {
			ok = it.Next()
			continue
		}
		it = m.rows.Iter()
		m.probe.key = r.key
		if ok = it.Seek(&m.probe); ok && it.Item().key == r.key {
			ok = it.Next()
		}
	}
}

// dueBefore yields the rows due before now, earliest first.
func (m *memory) dueBefore(now int64, yield func(*row) bool) {
	it := m.due.Iter()
	for ok := it.First(); ok; {
		r := it.Item()
		if r.due >= now {
			return
		}
		moved, at := m.dueMoved, r.due
		if !yield(r) {
			return
		}
		if moved == m.dueMoved {
			ok = it.Next()
			continue
		}
		// The row may have gone, or be due later: what follows is what is
		// due after the instant it was reached at.
		probe := row{key: r.key, due: at}
		it = m.due.Iter()
		if ok = it.Seek(&probe); ok && !dueLess(&probe, it.Item()) {
			ok = it.Next()
		}
	}
}

// owned yields the rows of id.
func (m *memory) owned(id uuid.UUID, yield func(*row) bool) {
	o := m.owners[id]
	if o == nil {
		return
	}
	c := &cursor{next: o.head}
	m.cursors = append(m.cursors, c)
	// Walks nest, and a panic in a body unwinds them innermost first.
	defer func() { m.cursors = m.cursors[:len(m.cursors)-1] }()
	for c.next != nil {
		r := c.next
		c.next = r.next
		if !yield(r) {
			return
		}
	}
}
