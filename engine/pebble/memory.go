package pebble

import (
	"strings"

	"github.com/google/uuid"
)

// A memory is the working set: every row, and the indexes over them. It is
// guarded by Engine.mu.
type memory struct {
	table  *table
	rows   *order[string, *row]
	due    dueOrder
	owners map[uuid.UUID]*owner

	cursors []*cursor // of the owner lists that are being walked
}

// A cursor is a place in an owner's list. Unlinking the row it stands on
// moves it on, so a list may change in any way while it is walked.
type cursor struct{ next *row }

func newMemory() *memory {
	rows := rowsByKey()
	return &memory{table: newTable(), rows: rows, due: dueOrder{rows: rows}, owners: make(map[uuid.UUID]*owner)}
}

func (m *memory) get(key string) *row { return m.table.get(key) }

// insert adds r, whose key is not in use, and links it to owner.
func (m *memory) insert(r *row, id uuid.UUID) {
	m.table.insert(r)
	m.rows.insert(r)
	m.link(r, id)
	m.due.insert(r)
}

// remove takes r out and leaves its fields but the links as they are.
func (m *memory) remove(r *row) {
	m.table.remove(r)
	m.rows.remove(r)
	m.unlink(r)
	m.due.remove(r)
}

func (m *memory) setOwner(r *row, id uuid.UUID) {
	if r.ownerID() != id {
		m.unlink(r)
		m.link(r, id)
	}
}

func (m *memory) setDue(r *row, due int64) {
	if r.due != due {
		m.due.move(r, due)
	}
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

// scan yields the rows whose key starts with prefix and is not less than from.
func (m *memory) scan(prefix, from string, yield func(*row) bool) {
	for r := range m.rows.from(from) {
		if !strings.HasPrefix(r.key(), prefix) || !yield(r) {
			return
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
