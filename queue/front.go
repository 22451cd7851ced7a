package queue

import (
	"slices"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A front is what stands next in a ready line, in memory, so that not every
// claim has to seek on the disk. It has all entries from the cursor to its last
// one, and of most the payload's row. A claim takes the first of them, and the
// cursor passes it; what else comes or goes there undoes the front, and the next
// claim makes another.
//
// Only a line that is longer than a front has one. So all fronts together take a
// small part of what their lines take on the disk, and those of a long line no
// more than of a short one.
const (
	frontTasks = 32
	frontBytes = 8 << 10  // of records, or one more than that
	aheadBytes = 16 << 10 // of payloads
)

// A place in a front is an entry of the line, and the task's payload row if that
// was read ahead: those of tasks that were enqueued together lie together.
type frontPlace struct{ tail, value, payload string }

// first is the first entry of a line that is long enough for a front, and the
// value of its task's payload row, or "".
func (in index) first(tx Tx) (first engine.Row, payload string, ok bool) {
	from := in.from(tx)
	if front, ok := tx.Get(in.front); ok {
		places, last := openFront(front)
		r := record.Read(places)
		for range frontTasks {
			p := frontPlace{r.Text(), r.Text(), r.Text()}
			if p.tail < from {
				continue
			}
			if p.tail == last {
				tx.Delete(front.Key) // of no more use
			}
			return engine.Row{Key: in.prefix + p.tail, Value: p.value}, p.payload, true
		}
	}
	places := make([]frontPlace, 0, frontTasks)
	size := 0
	for row := range tx.ScanFrom(in.prefix, in.prefix+from) {
		places = append(places, frontPlace{tail: in.tail(row), value: row.Value})
		if size += len(row.Value); len(places) == frontTasks || size > frontBytes {
			break
		}
	}
	if len(places) == 0 {
		return first, "", false
	}
	readAhead(tx, places)
	if len(places) > 1 {
		w := record.New(size + aheadBytes)
		for _, p := range places {
			w.Text(p.tail)
			w.Text(p.value)
			w.Text(p.payload)
		}
		w.Text(places[len(places)-1].tail)
		tx.Touch(engine.Row{Key: in.front, Value: w.String()})
	}
	return engine.Row{Key: in.prefix + places[0].tail, Value: places[0].value}, places[0].payload, true
}

// readAhead reads the payloads of a front that lie where the first of them does,
// among a few others at most. A long one ends it.
func readAhead(tx Tx, places []frontPlace) {
	wanted := make(map[string]*frontPlace, len(places))
	first := ""
	for i := range places {
		p := &places[i]
		id := p.value[:min(16, len(p.value))]
		wanted[id] = p
		if first == "" || id < first {
			first = id
		}
	}
	others, size := len(places), 0
	for row := range tx.ScanFrom(payloadPrefix, payloadPrefix+first) {
		id := row.Key[len(payloadPrefix):]
		if p := wanted[id]; p == nil {
			others--
		} else if size += len(row.Value); size <= aheadBytes {
			p.payload = row.Value
			delete(wanted, id)
		}
		if len(wanted) == 0 || others == 0 || size > aheadBytes || len(row.Value) > smallPayload {
			return
		}
	}
}

// openFront gives the places of a front, and the tail of the last.
func openFront(row engine.Row) (places, last string) {
	const size = 1 + 8 // a place, as a text
	at := len(row.Value) - size
	if at < 0 {
		panic(corrupt(row.Key, errEntry))
	}
	return row.Value[:at], row.Value[at+1:]
}

// front finds that a front has what stands in its line.
func (c *checker) front(row engine.Row) {
	in := indexAt(row.Key)
	entries, last := openFront(row)
	var front, line []engine.Row
	for r := record.Read(entries); !r.Done(); {
		p := frontPlace{r.Text(), r.Text(), r.Text()}
		if len(p.tail) == 0 || len(p.value) < 16 {
			panic(corrupt(row.Key, errEntry))
		}
		if p.tail < in.from(c.tx) {
			continue
		}
		front = append(front, engine.Row{Key: in.prefix + p.tail, Value: p.value})
		if stored, _ := c.tx.Get(payloadPrefix + p.value[:16]); p.payload != "" && p.payload != stored.Value {
			c.fault("front %q has another payload of task %s", row.Key, in.idAt(front[len(front)-1]))
		}
	}
	for entry := range in.entries(c.tx) {
		if in.tail(entry) > last {
			break
		}
		line = append(line, entry)
	}
	if !slices.Equal(front, line) {
		c.fault("front %q is not what stands in the line", row.Key)
	}
}
