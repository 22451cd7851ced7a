package queue

import (
	"iter"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// An index is the cold rows whose keys start with its prefix, one for each task
// that stands in it. Most is taken from its front, and what was taken costs
// whoever seeks from there until the store has forgotten it. So something says
// before what nothing stands: of a ready line the queue's account, of what stands
// by time a row that is not cold, the cursor.
type index struct {
	prefix string // of its entries' keys
	beside string // key of its cursor, or of a ready line's front, see there

	line     line
	priority int // of a ready line
}

func readyIndex(l line, priority int) index {
	return indexAt(frontPrefix+readyPrefix+l.name()+"\x00"+digit(priority), len(frontPrefix), l, priority)
}

func delayedIndex(l line) index  { return indexByTime(delayedPrefix, l) }
func finishedIndex(l line) index { return indexByTime(finishedPrefix, l) }
func deadIndex(l line) index     { return indexByTime(deadPrefix, l) }

func indexByTime(kind string, l line) index {
	return indexAt(cursorPrefix+kind+l.name()+"\x00", len(cursorPrefix), l, 0)
}

// indexAt makes an index from the key of what is beside it, in which its prefix
// is from at on.
func indexAt(beside string, at int, l line, priority int) index {
	return index{prefix: beside[at:], beside: beside, line: l, priority: priority}
}

// digit stands for a priority in keys, the highest first.
func digit(priority int) string {
	const digits = "9876543210"
	return digits[priority : priority+1]
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

// entryKey is the key of a task's entry in the index of its state. One in
// progress has none.
func (t *Task) entryKey() string {
	switch {
	case t.State == Ready:
		return readyPrefix + t.line.name() + "\x00" + digit(t.Priority) + record.Fixed(t.place)
	case t.State == Delayed:
		return delayedPrefix + t.line.name() + "\x00" + atTime(t.DueAt, t.ID)
	case t.State.Finished():
		return finishedPrefix + t.line.name() + "\x00" + atTime(t.Until, t.ID)
	}
	return ""
}

// deadKey is the key of the other entry that a dead task has.
func (t *Task) deadKey() string {
	return deadPrefix + t.line.name() + "\x00" + atTime(t.Until, t.ID)
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
func (in index) taskAt(tx *ledger, row engine.Row) (t Task) {
	if in.ofReady() {
		in.readyAt(in.tail(row), row.Value, &t)
		return t
	}
	t, ok := getTask(tx, in.idAt(row))
	if !ok {
		panic(corrupt(row.Key, errEntry))
	}
	return t
}

// readyAt reads the task of an entry of a ready line.
func (in index) readyAt(tail, value string, t *Task) {
	err := errEntry
	if len(value) >= 16 {
		err = t.decode(uuid.UUID([]byte(value[:16])), value[16:], in.line)
	}
	if err == nil && (t.State != Ready || t.line != in.line || t.Priority != in.priority || record.Fixed(t.place) != tail) {
		err = errEntry
	}
	if err != nil {
		panic(corrupt(in.prefix+tail, err))
	}
}

// tail is what an entry's key has behind the prefix.
func (in index) tail(row engine.Row) string { return row.Key[len(in.prefix):] }

// from is before what nothing stands; "" where that is not known.
func (in index) from(tx *ledger) string {
	if in.ofReady() {
		return record.Fixed(tx.accountOf(in.line).first[in.priority])
	}
	row, _ := tx.Get(in.beside)
	return row.Value
}

// entries yields the index, first first.
func (in index) entries(tx *ledger) iter.Seq[engine.Row] {
	return tx.ScanFrom(in.prefix, in.prefix+in.from(tx))
}

// passed notes that nothing stands before tail.
func (in index) passed(tx *ledger, tail string) {
	switch {
	case tail <= in.from(tx):
	case in.ofReady():
		a := tx.accountOf(in.line)
		a.first[in.priority], a.moved = record.ReadFixed(tail), true
	default:
		tx.Touch(engine.Row{Key: in.beside, Value: tail})
	}
}

// reopen is for an entry that may come before others in an index by time: the
// cursor goes back for it.
func (in index) reopen(tx *ledger, tail string) {
	if tail < in.from(tx) {
		tx.Touch(engine.Row{Key: in.beside, Value: tail})
	}
}

// forget removes what is kept of an index in which nothing stands.
func (in index) forget(tx *ledger) { tx.Delete(in.beside) }
