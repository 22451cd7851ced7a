package memory

import (
	"bytes"
	"strings"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"github.com/tidwall/btree"

	"github.com/leasehold/leasehold/engine"
)

// A row is a row of the working set. Its key, value, owner and due time never
// change: a write replaces the row by another. So a copy of the trees is a
// snapshot.
type row struct {
	key   string
	value string
	owner uuid.UUID
	due   int64 // unix nanoseconds, or never

	// These say what the store has under the key once all writes made so far
	// have reached it.
	stored bool // it has a record
	once   bool // exactly one Set reached the store since the key last had no record
}

// newRow copies key and value: a string cut from a request would keep the whole
// request in memory.
func newRow(p engine.Row) *row {
	key, value := together(p.Key, p.Value)
	return &row{key: key, value: value, owner: p.Owner, due: instant(p.Due)}
}

// together copies a key and a value into one allocation.
func together[T string | []byte](key, value T) (k, v string) {
	b := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	both := unsafe.String(unsafe.SliceData(b), len(b)) // nobody writes to b any more
	return both[:len(key)], both[len(key):]
}

// public returns the row for a caller of the engine; the zero Row if there is
// none.
func (r *row) public() engine.Row {
	if r == nil {
		return engine.Row{}
	}
	p := engine.Row{Key: r.key, Value: r.value, Owner: r.owner}
	if r.due != never {
		p.Due = time.Unix(0, r.due).UTC()
	}
	return p
}

// instant returns t in unix nanoseconds. It must be between 1678 and 2262, as every
// instant of a running clock is.
func instant(t time.Time) int64 {
	if t.IsZero() {
		return never
	}
	return t.UnixNano()
}

// A set indexes rows by key, by owner and by due time.
type set struct {
	rows  *btree.Map[string, *row]
	owned *btree.BTreeG[*row] // those with an owner, by owner and key
	due   *btree.BTreeG[*row] // those with a due time, by due time and key

	changes int // number of changes; a walk that finds it changed seeks its position again
}

func newSet() *set {
	return &set{
		rows:  new(btree.Map[string, *row]),
		owned: btree.NewBTreeGOptions(byOwner, btree.Options{NoLocks: true}),
		due:   btree.NewBTreeGOptions(byDue, btree.Options{NoLocks: true}),
	}
}

func byOwner(a, b *row) bool {
	if c := bytes.Compare(a.owner[:], b.owner[:]); c != 0 {
		return c < 0
	}
	return a.key < b.key
}

func byDue(a, b *row) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.key < b.key
}

// copy returns a copy of the set, in time independent of its size. A later
// change of either set copies the nodes of the trees that it changes.
func (s *set) copy() *set {
	return &set{rows: s.rows.Copy(), owned: s.owned.Copy(), due: s.due.Copy()}
}

func (s *set) get(key string) *row {
	r, _ := s.rows.Get(key)
	return r
}

// put adds a row, and returns the one that it replaces or nil.
func (s *set) put(is *row) (was *row) {
	was, _ = s.rows.Set(is.key, is)
	s.index(was, is)
	return was
}

// delete removes the row under a key and returns it, or nil if there is none.
func (s *set) delete(key string) (was *row) {
	if was, _ = s.rows.Delete(key); was != nil {
		s.index(was, nil)
	}
	return was
}

// index replaces was by is in the other indexes; nil is no row. An index changes
// only if its sort key does, so it may hold an earlier row of the same key.
func (s *set) index(was, is *row) {
	s.changes++
	if was != nil {
		if was.owner != uuid.Nil && (is == nil || is.owner != was.owner) {
			s.owned.Delete(was)
		}
		if was.due != never && (is == nil || is.due != was.due) {
			s.due.Delete(was)
		}
	}
	if is == nil {
		return
	}
	if is.owner != uuid.Nil && (was == nil || is.owner != was.owner) {
		s.owned.Set(is)
	}
	if is.due != never && (was == nil || is.due != was.due) {
		s.due.Set(is)
	}
}

// first returns the first row whose key starts with prefix and is at least
// from, or nil.
func (s *set) first(prefix, from string) (first *row) {
	s.rows.Ascend(from, func(key string, r *row) bool {
		if strings.HasPrefix(key, prefix) {
			first = r
		}
		return false
	})
	return first
}

// scan yields the rows whose key starts with prefix and is at least from.
func (s *set) scan(prefix, from string, yield func(*row) bool) {
	it := s.rows.Iter()
	for ok := it.Seek(from); ok && strings.HasPrefix(it.Key(), prefix); {
		key, changes := it.Key(), s.changes
		if !yield(it.Value()) {
			return
		}
		if s.changes == changes {
			ok = it.Next()
		} else {
			ok = it.Seek(key + "\x00")
		}
	}
}

// walk yields the rows of an index, beginning with the first that is not less
// than from, while in reports true.
func (s *set) walk(index *btree.BTreeG[*row], from *row, in func(*row) bool, yield func(*row) bool) {
	it := index.Iter()
	for ok := it.Seek(from); ok && in(it.Item()); {
		at, changes := it.Item(), s.changes
		if !yield(s.get(at.key)) {
			return
		}
		if s.changes != changes {
			if ok = it.Seek(at); ok && index.Less(at, it.Item()) {
				continue
			}
		}
		ok = it.Next()
	}
}

func (s *set) ownedBy(owner uuid.UUID, prefix string, yield func(*row) bool) {
	if owner == uuid.Nil {
		return
	}
	within := func(r *row) bool { return r.owner == owner && strings.HasPrefix(r.key, prefix) }
	s.walk(s.owned, &row{owner: owner, key: prefix}, within, yield)
}

// dueBefore yields the rows due before an instant, earliest first.
func (s *set) dueBefore(at int64, yield func(*row) bool) {
	s.walk(s.due, &row{due: -never - 1}, func(r *row) bool { return r.due < at }, yield)
}

// firstDue returns the earliest due time, or never.
func (s *set) firstDue() int64 {
	if r, ok := s.due.Min(); ok {
		return r.due
	}
	return never
}
