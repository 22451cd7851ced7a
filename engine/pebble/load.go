package pebble

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"
)

// A loader reads some of the rows that are stored, in the order of their keys,
// and gets ready what the indexes have of them.
type loader struct {
	mem    *memory
	mu     *sync.Mutex // of mem's owners, which others use as well
	order  orderLoader[string, *row]
	table  tableLoader
	owners map[uuid.UUID]*ownerLoader

	// Rows that were read one after another share their memory, as do their
	// texts: it is freed with the last of them, so what rows that stay hold on to
	// is never more than all took when the state was opened.
	rows  []row
	texts []byte
}

const (
	slabRows = 63      // which fill 4 kB, with the word that the allocator keeps with them
	slabText = 8 << 10 // bytes; a longer text has memory of its own
)

func (l *loader) read(it *pebble.Iterator) error {
	l.order.o = l.mem.rows
	l.table.t = l.mem.table
	l.owners = make(map[uuid.UUID]*ownerLoader)
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()[1:]
		value, owner, due, err := decodeRow(key, it.Value())
		if err != nil {
			return err
		}
		l.add(key, value, owner, due)
	}
	return it.Error()
}

func (l *loader) add(key, value []byte, id uuid.UUID, due int64) {
	n := len(key) + len(value)
	if n > cap(l.texts)-len(l.texts) {
		l.texts = make([]byte, 0, max(n, slabText))
	}
	at := len(l.texts)
	l.texts = append(append(l.texts, key...), value...)
	if len(l.rows) == cap(l.rows) {
		l.rows = make([]row, 0, slabRows)
	}
	l.rows = append(l.rows, row{due: due, word: storedBit})
	r := &l.rows[len(l.rows)-1]
	r.setText(unsafe.String(&l.texts[at], n), len(key))
	l.order.add(r)
	l.table.add(r)
	if id != uuid.Nil {
		l.owner(id).add(r)
	}
}

// An ownerLoader is the rows of an owner that one loader has met.
type ownerLoader struct {
	owner      *owner
	head, tail *row
}

func (l *loader) owner(id uuid.UUID) *ownerLoader {
	o := l.owners[id]
	if o == nil {
		o = &ownerLoader{owner: l.shared(id)}
		l.owners[id] = o
	}
	return o
}

// shared gives the owner that all loaders have.
func (l *loader) shared(id uuid.UUID) *owner {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := l.mem.owners[id]
	if o == nil {
		o = &owner{id: id}
		l.mem.owners[id] = o
	}
	return o
}

func (o *ownerLoader) add(r *row) {
	r.owner, r.next = o.owner, o.head
	if o.head != nil {
		o.head.prev = r
	} else {
		o.tail = r
	}
	o.head = r
}

// join fills the indexes with what loaders have got ready, each for rows whose
// keys come after those of the one before.
func (m *memory) join(loaders []loader) {
	onAllCores(len(m.table.parts), func(part int) { m.table.load(part, loaders) })
	for i := range loaders {
		l := &loaders[i]
		m.rows.load(l.order.leaves)
		for _, o := range l.owners {
			o.tail.next = o.owner.head
			if o.owner.head != nil {
				o.owner.head.prev = o.tail
			}
			o.owner.head = o.head
		}
	}
	m.table.n = m.rows.n
}

// onAllCores calls do with each number below n.
func onAllCores(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}
