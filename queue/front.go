package queue

import (
	"slices"
	"sort"
	"strings"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A front is what stands next in a ready line, in memory, so that not every
// claim has to seek on the disk. It has all entries up to its last one, and of
// most the payload's row. A claim takes the first that it has not passed; what
// else comes or goes there undoes the front, and the next claim makes another.
//
// Only a line that is longer than a front has one. So all fronts together take a
// small part of what their lines take on the disk, and those of a long line no
// more than of a short one.
//
// It is a table of the places that are in it and then, for each, its entry and
// the payload's row, if that was read ahead: those of tasks that were enqueued
// together lie together.
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

// next reads the first task of a line that is long enough for a front.
func (in index) next(tx *ledger, t *Task) (ok bool) {
	row, _ := tx.Get(in.beside)
	f := front(row.Value)
	i := f.at(in.from(tx))
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
	in.readyAt(p.tail, p.value, t)
	t.payload = p.payload
	return true
}

// front reads what stands next. It is empty if nothing does.
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

// readAhead reads the payloads of a front that lie where the first of them does,
// among a few others at most. A long one ends it.
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

func (f front) tail(i int) string { return string(f[frontItem*i : frontItem*i+8]) }

// offsets are where the entry and the payload of a place begin.
func (f front) offsets(i int) (entry, payload int) {
	both := record.ReadFixed(string(f[frontItem*i+8 : frontItem*(i+1)]))
	return int(both >> 32), int(uint32(both))
}

// at finds the first place that is not before from.
func (f front) at(from string) int {
	return sort.Search(f.len(), func(i int) bool { return f.tail(i) >= from })
}

func (f front) place(i int) frontPlace {
	entry, payload := f.offsets(i)
	end := len(f)
	if i+1 < f.len() {
		end, _ = f.offsets(i + 1)
	}
	return frontPlace{f.tail(i), string(f[entry:payload]), string(f[payload:end])}
}

// front finds that a front has what stands in its line.
func (c *checker) front(row engine.Row) {
	prefix := row.Key[len(frontPrefix):]
	kind := len(prefix) - 2
	in := indexAt(row.Key, len(frontPrefix), lineNamed(prefix[len(readyPrefix):kind]), MaxPriority-int(prefix[kind+1]-'0'))
	f := front(row.Value)
	if f.len() == 0 {
		panic(corrupt(row.Key, errEntry))
	}
	var stands, line []engine.Row
	for i := f.at(in.from(c.tx)); i < f.len(); i++ {
		p := f.place(i)
		stands = append(stands, engine.Row{Key: in.prefix + p.tail, Value: p.value})
		if stored, _ := c.tx.Get(payloadPrefix + p.id()); p.payload != "" && p.payload != stored.Value {
			c.fault("front %q has another payload of task %x", row.Key, p.id())
		}
	}
	for entry := range in.entries(c.tx) {
		if in.tail(entry) > f.tail(f.len()-1) {
			break
		}
		line = append(line, entry)
	}
	if !slices.Equal(stands, line) {
		c.fault("front %q is not what stands in the line", row.Key)
	}
}
