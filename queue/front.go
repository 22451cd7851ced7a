package queue

import (
	"slices"
	"sort"
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A front is the next tasks of a ready line, kept in memory. A claim of one task
// that had to find it in the store would take a quarter longer. It has all entries
// of the line up to its last one, and the payload's row of most. A claim takes the
// first entry that is not below the line's lower bound. Any other change there
// drops the front, and the next claim makes another. It is a row, so what undoes a
// transaction undoes what the transaction made of it.
//
// Only a line that is longer than a front has one. So all fronts together take a
// small part of the room that their lines take on the disk.
//
// Its value is a table of the places, and then for each its entry and the
// payload's row, if that was read ahead: those of tasks that were enqueued
// together are stored together.
type front string

const (
	frontTasks = 64
	frontBytes = 16 << 10 // of records, or one more than that
	aheadBytes = 32 << 10 // of payloads
	frontItem  = 8 + 4 + 4
)

// A frontPlace is an entry of the line, and the value of the payload's row or "".
type frontPlace struct{ tail, value, payload string }

func (p *frontPlace) id() string { return p.value[:min(16, len(p.value))] }

// next reads the first task of a line that is long enough for a front. It reports
// false if there is none that can be read.
func (in index) next(tx *ledger, t *Task) (ok bool) {
	row, _ := tx.Get(in.beside)
	f := front(row.Value)
	i := f.at(in.lowerBound(tx))
	if i == f.len() {
		if f = in.front(tx); f == "" {
			return false
		}
		i = 0
		tx.Touch(engine.Row{Key: in.beside, Value: string(f)})
	}
	if i == f.len()-1 {
		tx.Delete(in.beside) // of no more use
	}
	p := f.place(i)
	if !in.readyTask(tx, p.tail, p.value, t) {
		tx.q.setAside(tx, in, engine.Row{Key: in.prefix + p.tail, Value: p.value})
		some := in.appendFirst(nil, tx, 1)
		if len(some) > 0 {
			*t = some[0].Task
		}
		return len(some) > 0
	}
	t.payload = p.payload
	return true
}

// front reads the next tasks of a line. It is empty if there are none.
func (in index) front(tx *ledger) front {
	places := make([]frontPlace, 0, frontTasks)
	size := 0
	for row := range in.entries(tx) {
		places = append(places, frontPlace{tail: in.tail(row), value: row.Value})
		if size += len(row.Value); len(places) == frontTasks || size > frontBytes {
			break
		}
	}
	readAhead(tx, places)
	return newFront(places)
}

// readAhead reads the payloads of a front that are stored near the first of them,
// with a few others between at most. A long one ends it.
func readAhead(tx *ledger, places []frontPlace) {
	wanted := make([]*frontPlace, 0, len(places))
	for i := range places {
		wanted = append(wanted, &places[i])
	}
	slices.SortFunc(wanted, func(a, b *frontPlace) int { return strings.Compare(a.id(), b.id()) })
	if len(wanted) == 0 {
		return
	}
	others, size := len(places), 0
	for row := range tx.ScanFrom(payloadPrefix, payloadPrefix+wanted[0].id()) {
		id := row.Key[len(payloadPrefix):]
		for len(wanted) > 0 && wanted[0].id() < id {
			wanted = wanted[1:]
		}
		if len(wanted) == 0 || len(row.Value) > smallPayload {
			return
		}
		if wanted[0].id() != id {
			others--
		} else if size += len(row.Value); size <= aheadBytes {
			wanted[0].payload = row.Value
		}
		if others == 0 || size > aheadBytes {
			return
		}
	}
}

func newFront(places []frontPlace) front {
	size := frontItem * len(places)
	for _, p := range places {
		size += len(p.value) + len(p.payload)
	}
	w := record.New(size)
	at := frontItem * len(places)
	for _, p := range places {
		payload := at + len(p.value)
		w.Rest(p.tail)
		w.Rest(record.Fixed(uint64(at)<<32 | uint64(payload)))
		at = payload + len(p.payload)
	}
	for _, p := range places {
		w.Rest(p.value)
		w.Rest(p.payload)
	}
	return front(w.String())
}

// len is how many places f has. The first entry begins where the table ends.
func (f front) len() int {
	if len(f) < frontItem {
		return 0
	}
	entry, _ := f.offsets(0)
	return entry / frontItem
}

// valid reports whether f is one: Check asks.
func (f front) valid() bool {
	if f.len() == 0 || f.len() > frontTasks || len(f) < frontItem*f.len() {
		return false
	}
	for i, at := 0, 0; i < f.len(); i++ {
		entry, payload := f.offsets(i)
		if entry < at || payload < entry || payload > len(f) {
			return false
		}
		at = payload
	}
	return true
}

func (f front) tail(i int) string { return string(f[frontItem*i : frontItem*i+8]) }

// offsets are where the entry and the payload of a place begin.
func (f front) offsets(i int) (entry, payload int) {
	both := record.ReadFixed(string(f[frontItem*i+8 : frontItem*(i+1)]))
	return int(both >> 32), int(uint32(both))
}

// at finds the first place that is not below bound.
func (f front) at(bound string) int {
	return sort.Search(f.len(), func(i int) bool { return f.tail(i) >= bound })
}

func (f front) place(i int) frontPlace {
	entry, payload := f.offsets(i)
	end := len(f)
	if i+1 < f.len() {
		end, _ = f.offsets(i + 1)
	}
	return frontPlace{f.tail(i), string(f[entry:payload]), string(f[payload:end])}
}
