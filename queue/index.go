package queue

import (
	"encoding/binary"
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the key schema in the package doc.
const (
	accountPrefix = "queue/"
	placeKey      = "queue"
	queuesPrefix  = "queues/"
	alarmPrefix   = "alarm/"
	alarmKey      = "alarm"
	cursorPrefix  = "cursor/"
	waiterPrefix  = "waiter/"
	dropPrefix    = "drop/"
	frontPrefix   = "front/"

	taskPrefix     = engine.Cold + "task/"
	payloadPrefix  = engine.Cold + "payload/"
	resultPrefix   = engine.Cold + "result/"
	readyPrefix    = engine.Cold + "ready/"
	delayedPrefix  = engine.Cold + "delayed/"
	timedPrefix    = engine.Cold + "timed/"
	finishedPrefix = engine.Cold + "finished/"
	deadPrefix     = engine.Cold + "dead/"
	corruptPrefix  = engine.Cold + "corrupt/"
	keyPrefix      = engine.Cold + "key/"
)

func dropKey(run uuid.UUID) string      { return dropPrefix + string(run[:]) }
func queuesKey(of uuid.UUID) string     { return queuesPrefix + string(of[:]) }
func waiterKeys(l line) string          { return waiterPrefix + l.name() + "\x00" }
func taskKey(id uuid.UUID) string       { return taskPrefix + string(id[:]) }
func payloadKey(id uuid.UUID) string    { return payloadPrefix + string(id[:]) }
func resultKey(id uuid.UUID) string     { return resultPrefix + string(id[:]) }
func idemKey(l line, key string) string { return keyPrefix + l.name() + "\x00" + key }

// An index is the cold rows whose keys start with its prefix, one for each task
// in it. Entries are mostly taken from the front, and until the store has
// forgotten those it passes over them one by one. So each index has a lower
// bound: no entry sorts before it. That of a ready line is in the queue's account.
// That of an index by time is a row in memory, the cursor.
type index struct {
	prefix string // of its entries' keys
	beside string // key of its cursor, or of a ready line's front, see there

	kind     string // readyPrefix, …
	line     line
	priority int // of a ready line
}

func readyIndex(l line, priority int) index {
	return indexAt(frontPrefix+readyPrefix+l.name()+"\x00"+digit(priority), len(frontPrefix), readyPrefix, l, priority)
}

func delayedIndex(l line) index  { return indexByTime(delayedPrefix, l) }
func timedIndex(l line) index    { return indexByTime(timedPrefix, l) }
func finishedIndex(l line) index { return indexByTime(finishedPrefix, l) }
func deadIndex(l line) index     { return indexByTime(deadPrefix, l) }
func corruptIndex(l line) index  { return indexByTime(corruptPrefix, l) }

func indexByTime(kind string, l line) index {
	return indexAt(cursorPrefix+kind+l.name()+"\x00", len(cursorPrefix), kind, l, 0)
}

// indexAt makes an index from the key of what is beside it. Its prefix is the
// part of that from at on.
func indexAt(beside string, at int, kind string, l line, priority int) index {
	return index{prefix: beside[at:], beside: beside, kind: kind, line: l, priority: priority}
}

// digit stands for a priority in keys, the highest first.
func digit(priority int) string {
	const digits = "9876543210"
	return digits[priority : priority+1]
}

// indexesOf are all indexes of a line but that of its dead tasks, which are among
// the finished, too.
func indexesOf(l line) []index {
	list := []index{delayedIndex(l), timedIndex(l), finishedIndex(l), corruptIndex(l)}
	for priority := range MaxPriority + 1 {
		list = append(list, readyIndex(l, priority))
	}
	return list
}

// entry is the index of a task's state, and the task's place in it. A task in
// progress is in none.
func (t *Task) entry() (in index, tail string) {
	switch {
	case t.State == Ready:
		return readyIndex(t.line, t.Priority), record.Fixed(t.place)
	case t.State == Delayed && t.byWall:
		return timedIndex(t.line), atTime(t.due, t.ID)
	case t.State == Delayed:
		return delayedIndex(t.line), atTime(t.due, t.ID)
	case t.State.Finished():
		return finishedIndex(t.line), atTime(t.Until, t.ID)
	}
	return index{}, ""
}

// atTime sorts by time, then by id.
func atTime(at time.Time, id uuid.UUID) string {
	var b [24]byte
	binary.BigEndian.PutUint64(b[:], uint64(at.UnixNano()))
	copy(b[8:], id[:])
	return string(b[:])
}

// timeAndID reads what atTime wrote at the end of an entry's key.
func (in index) timeAndID(row engine.Row) (at time.Time, id uuid.UUID, ok bool) {
	tail := in.tail(row)
	if len(tail) != 24 {
		return time.Time{}, uuid.Nil, false
	}
	return time.Unix(0, int64(record.ReadFixed(tail))).UTC(), uuid.UUID([]byte(tail[8:])), true
}

func (in index) ofReady() bool { return strings.HasPrefix(in.prefix, readyPrefix) }

// taskAt is the task of an entry. A ready one has its record in the entry, so
// that a claim reads one row.
func (in index) taskAt(tx *ledger, row engine.Row) (t Task, ok bool) {
	if in.ofReady() {
		ok = in.readyTask(tx, in.tail(row), row.Value, &t)
		return t, ok
	}
	_, id, ok := in.timeAndID(row)
	if !ok {
		return Task{}, false
	}
	found, err := t.read(tx, id)
	return t, found && err == nil
}

// readyTask reads the task of an entry of a ready line. If the record there
// cannot be read, it tries the task's other one.
func (in index) readyTask(tx *ledger, tail, value string, t *Task) bool {
	if len(value) < 16 {
		return false
	}
	id := uuid.UUID([]byte(value[:16]))
	if t.decode(id, value[16:], in.line) && in.isAt(t, tail) {
		return true
	}
	found, err := t.read(tx, id)
	return found && err == nil && in.isAt(t, tail)
}

// isAt reports whether a task is ready at a place of the line.
func (in index) isAt(t *Task, tail string) bool {
	return t.State == Ready && t.line == in.line && t.Priority == in.priority && record.Fixed(t.place) == tail
}

// tail is what an entry's key has behind the prefix.
func (in index) tail(row engine.Row) string { return row.Key[len(in.prefix):] }

// lowerBound: no entry sorts before it. "" if that is not known.
func (in index) lowerBound(tx *ledger) string {
	if in.ofReady() {
		return record.Fixed(tx.accountOf(in.line).first[in.priority])
	}
	row, _ := tx.Get(in.beside)
	return row.Value
}

// entries yields the index in order.
func (in index) entries(tx *ledger) iter.Seq[engine.Row] {
	return tx.ScanFrom(in.prefix, in.prefix+in.lowerBound(tx))
}

// raiseLowerBound notes that no entry sorts before tail.
func (in index) raiseLowerBound(tx *ledger, tail string) {
	switch {
	case tail <= in.lowerBound(tx):
	case in.ofReady():
		a := tx.accountOf(in.line)
		a.first[in.priority], a.moved = record.ReadFixed(tail), true
	default:
		tx.Touch(engine.Row{Key: in.beside, Value: tail})
	}
}

// lowerLowerBound is for an entry that is added to an index by time, and may sort
// before others.
func (in index) lowerLowerBound(tx *ledger, tail string) {
	if tail < in.lowerBound(tx) {
		tx.Touch(engine.Row{Key: in.beside, Value: tail})
	}
}

// forget removes what is kept in memory about an index.
func (in index) forget(tx *ledger) { tx.Delete(in.beside) }
