package queue

import (
	"iter"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// An index is the cold rows whose keys start with its prefix, one for each task
// that stands in it. Most is taken from its front, and what was taken costs
// whoever seeks from there until the store has forgotten it: so a cursor, which
// is not cold, says before what nothing stands.
type index struct {
	prefix string // of its entries' keys
	cursor string // key of its cursor
	front  string // key of its front, see there
}

// indexAt makes an index from the key of its front, in which the others are.
func indexAt(front string) index {
	cursor := front[len(frontPrefix):]
	return index{front: front, cursor: cursor, prefix: cursor[len(cursorPrefix):]}
}

// indexOf makes the index of a kind of a line, or the part of it that more names.
func indexOf(kind string, l line, more string) index {
	return indexAt(frontPrefix + cursorPrefix + kind + l.name() + "\x00" + more)
}

func delayedIndex(l line) index  { return indexOf(delayedPrefix, l, "") }
func finishedIndex(l line) index { return indexOf(finishedPrefix, l, "") }
func deadIndex(l line) index     { return indexOf(deadPrefix, l, "") }

func readyIndex(l line, priority int) index {
	const digits = "9876543210" // the highest priority first
	return indexOf(readyPrefix, l, digits[priority:priority+1])
}

// indexesOf are all indexes of a line but those of its dead, who stand among
// the finished too.
func indexesOf(l line) []index {
	list := []index{delayedIndex(l), finishedIndex(l)}
	for priority := range MaxPriority + 1 {
		list = append(list, readyIndex(l, priority))
	}
	return list
}

// entry is where a task stands in the index of its state. One in progress
// stands in none.
func entry(t *Task) (in index, tail string, ok bool) {
	switch {
	case t.State == Ready:
		return readyIndex(t.line, t.Priority), bigEndian(t.place), true
	case t.State == Delayed:
		return delayedIndex(t.line), atTime(t.DueAt, t.ID), true
	case t.State.Finished():
		return finishedIndex(t.line), atTime(t.Until, t.ID), true
	}
	return index{}, "", false
}

func (in index) ofReady() bool { return strings.HasPrefix(in.prefix, readyPrefix) }

// idAt is the id of the task that an entry is of.
func (in index) idAt(row engine.Row) uuid.UUID {
	if in.ofReady() {
		return idOf(row.Key, row.Value[:min(16, len(row.Value))])
	}
	return idOf(row.Key, row.Key[max(len(in.prefix), len(row.Key)-16):])
}

// taskAt is the task that an entry is of. That of a ready one has its record,
// so that a claim reads one row.
func (in index) taskAt(tx Tx, row engine.Row) Task {
	id := in.idAt(row)
	if !in.ofReady() {
		t, ok := getTask(tx, id)
		if !ok {
			panic(corrupt(row.Key, errEntry))
		}
		return t
	}
	t, err := decodeTask(id, row.Value[16:])
	if err != nil {
		panic(corrupt(row.Key, err))
	}
	if at, tail, ok := entry(&t); !ok || at.prefix+tail != row.Key {
		panic(corrupt(row.Key, errEntry))
	}
	return t
}

// tail is what an entry's key has behind the prefix.
func (in index) tail(row engine.Row) string { return row.Key[len(in.prefix):] }

// from is before what nothing stands; "" while there is no cursor.
func (in index) from(tx Tx) string {
	row, _ := tx.Get(in.cursor)
	return row.Value
}

// entries yields the index, first first.
func (in index) entries(tx Tx) iter.Seq[engine.Row] {
	return tx.ScanFrom(in.prefix, in.prefix+in.from(tx))
}

// keepCursor is how many places a durable cursor may be behind.
const keepCursor = 1 << 10

// passed notes that nothing stands before tail. Of a ready line that is written
// down now and then: its front moves fastest, and a restart need not pass over
// all that was ever claimed there.
func (in index) passed(tx Tx, tail string) {
	cursor := engine.Row{Key: in.cursor, Value: tail}
	was, ok := tx.Get(cursor.Key)
	switch {
	case ok && tail <= was.Value:
	case !in.ofReady(),
		ok && fromBigEndian(tail)/keepCursor == fromBigEndian(was.Value)/keepCursor,
		!ok && fromBigEndian(tail) < keepCursor:
		tx.Touch(cursor)
	default:
		tx.Put(cursor)
	}
}

// reopen is for an entry that may come before others: the cursor goes back for
// it, durably where it may be durable.
func (in index) reopen(tx Tx, tail string) {
	cursor := engine.Row{Key: in.cursor, Value: tail}
	was, ok := tx.Get(cursor.Key)
	switch {
	case !ok || tail >= was.Value:
	case in.ofReady():
		tx.Put(cursor)
	default:
		tx.Touch(cursor)
	}
	if in.ofReady() {
		tx.Delete(in.front)
	}
}

// remove removes an entry. Who claims it has passed it.
func (in index) remove(tx Tx, tail string) {
	if in.ofReady() && tail >= in.from(tx) {
		tx.Delete(in.front)
	}
	tx.Delete(in.prefix + tail)
}

// forget removes what is kept of an index in which nothing stands.
func (in index) forget(tx Tx) {
	tx.Delete(in.cursor)
	if in.ofReady() {
		tx.Delete(in.front)
	}
}
