package queue

import (
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// The prefixes of the rows; the package doc describes them.
const (
	accountPrefix = "queue/"
	queuesPrefix  = "queues/"
	cursorPrefix  = "cursor/"
	waiterPrefix  = "waiter/"
	dropPrefix    = "drop/"
	replanKey     = "replan"

	taskPrefix    = engine.Cold + "task/"
	payloadPrefix = engine.Cold + "payload/"
	resultPrefix  = engine.Cold + "result/"
	keyPrefix     = engine.Cold + "key/"
	timedPrefix   = engine.Cold + "timed/"
	readyPrefix   = engine.Cold + "ready/"
)

// The prefixes of the indexes by time, for each state.
var timePrefixes = [...]string{
	Delayed: engine.Cold + "delayed/", Completed: engine.Cold + "completed/", Failed: engine.Cold + "failed/",
	Dead: engine.Cold + "dead/", Cancelled: engine.Cold + "cancelled/", corruptState: engine.Cold + "corrupt/",
}

func dropKey(run uuid.UUID) string      { return dropPrefix + string(run[:]) }
func queuesKey(of uuid.UUID) string     { return queuesPrefix + string(of[:]) }
func waiterKeys(l line) string          { return waiterPrefix + l.name() + "\x00" }
func taskKey(id uuid.UUID) string       { return taskPrefix + string(id[:]) }
func payloadKey(id uuid.UUID) string    { return payloadPrefix + string(id[:]) }
func resultKey(id uuid.UUID) string     { return resultPrefix + string(id[:]) }
func idemKey(l line, key string) string { return keyPrefix + l.name() + "\x00" + key }

// An index is the cold rows whose keys start with its prefix, one for each task
// in it. Entries are mostly taken from the front, and the store skips deleted
// entries one by one until it has compacted them away. So each index has a
// lower bound: no entry sorts before it. The bound of a ready line is in the
// queue's account. The bound of an index by time is a row in memory, the
// cursor.
type index struct {
	prefix   string // of its entries' keys
	cursor   string // key of its cursor
	line     line
	state    State // of its tasks
	priority int   // of a ready line
	byWall   bool  // its times are those of the wall clock
}

func readyIndex(l line, priority int) index {
	digit := "9876543210"[priority : priority+1] // the highest sorts first
	return index{prefix: readyPrefix + l.name() + "\x00" + digit, line: l, state: Ready, priority: priority}
}

func indexByTime(l line, state State, byWall bool) index {
	prefix := timePrefixes[state]
	if state == Delayed && byWall {
		prefix = timedPrefix
	}
	cursor := cursorPrefix + prefix + l.name() + "\x00"
	return index{prefix: cursor[len(cursorPrefix):], cursor: cursor, line: l, state: state, byWall: byWall}
}

func indexesOf(l line) (list []index) {
	for state := Delayed; state <= corruptState; state++ {
		list = append(list, indexesOfState(l, state)...)
	}
	return list
}

// indexesOfState returns the indexes for the tasks in a state. A task in
// progress is in no index.
func indexesOfState(l line, state State) (list []index) {
	switch state {
	case InProgress:
		return nil
	case Ready:
		for priority := MaxPriority; priority >= 0; priority-- {
			list = append(list, readyIndex(l, priority))
		}
		return list
	case Delayed:
		list = append(list, indexByTime(l, Delayed, false))
	}
	return append(list, indexByTime(l, state, true))
}

// entry returns the index for a task's state, and the task's position in it.
func (t *Task) entry() (in index, tail string) {
	switch {
	case t.State == InProgress:
		return index{}, ""
	case t.State == Ready:
		return readyIndex(t.line, t.Priority), record.Fixed(t.place)
	case t.State == Delayed:
		return indexByTime(t.line, Delayed, t.byWall), atTime(t.due, t.ID)
	}
	return indexByTime(t.line, t.State, true), atTime(t.Until, t.ID)
}

// atTime returns a tail that sorts by time, then by id.
func atTime(at time.Time, id uuid.UUID) string {
	return record.Fixed(uint64(at.UnixNano())) + string(id[:])
}

// tail returns the part of an entry's key after the prefix.
func (in index) tail(row engine.Row) string { return row.Key[len(in.prefix):] }

// at returns when an entry of an index by time is due. ok is false for a key
// that this version does not write.
func (in index) at(row engine.Row) (at time.Time, ok bool) {
	tail := in.tail(row)
	if len(tail) != 24 {
		return time.Time{}, false
	}
	return time.Unix(0, int64(record.ReadFixed(tail))).UTC(), true
}

// idOf returns the id of the task of a row. Entries of ready tasks, and rows of
// idempotency keys, have it in the value; other rows have it at the end of the
// key.
func idOf(row engine.Row, inValue bool) (id uuid.UUID, ok bool) {
	text := row.Value[:min(16, len(row.Value))]
	if !inValue {
		text = row.Key[max(0, len(row.Key)-16):]
	}
	copy(id[:], text)
	return id, len(text) == 16
}

func (in index) id(row engine.Row) (uuid.UUID, bool) { return idOf(row, in.state == Ready) }

// taskAt reads the task of an entry. The entry of a ready task contains its
// record, so a claim reads one row. If that copy cannot be read, taskAt tries
// the task's own record.
func (in index) taskAt(tx *ledger, row engine.Row, t *Task) (ok bool) {
	id, ok := in.id(row)
	if !ok {
		return false
	}
	if in.state == Ready && t.decode(id, row.Value[16:]) && in.has(t, row) {
		return true
	}
	found, err := t.read(tx, id)
	return found && err == nil && in.has(t, row)
}

// has reports whether the entry is the one that the task should have.
func (in index) has(t *Task, row engine.Row) bool {
	if in.state == Ready { // avoids building the key
		return t.State == Ready && t.line == in.line && t.Priority == in.priority && len(in.tail(row)) == 8 && t.place == record.ReadFixed(in.tail(row))
	}
	is, tail := t.entry()
	return is.prefix == in.prefix && tail == in.tail(row)
}

// lowerBound returns a tail before which no entry sorts, or "" if none is
// known.
func (in index) lowerBound(tx *ledger) string {
	if in.state == Ready {
		return record.Fixed(tx.accountOf(in.line).first[in.priority])
	}
	row, _ := tx.Get(in.cursor)
	return row.Value
}

func (in index) setLowerBound(tx *ledger, tail string) {
	if in.state != Ready {
		tx.Touch(engine.Row{Key: in.cursor, Value: tail})
		return
	}
	a := tx.accountOf(in.line)
	a.first[in.priority], a.moved = record.ReadFixed(tail), true
}

// put adds an entry.
func (in index) put(tx *ledger, tail, value string) {
	if in.state != Ready && tail < in.lowerBound(tx) {
		in.setLowerBound(tx, tail)
	}
	tx.Put(engine.Row{Key: in.prefix + tail, Value: value})
}

// entries yields the index in order.
func (in index) entries(tx *ledger) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		for row := range tx.ScanFrom(in.prefix, in.prefix+in.lowerBound(tx)) {
			if !yield(row) || tx.careful {
				return
			}
		}
	}
}

// A front is the next entries of a ready line, kept in memory with the payloads
// of their tasks. Reading them from the store for each claim of a single task
// would take a tenth to a quarter longer on a local disk. In a database it would be a
// query each time, with the engine locked. It has all entries of the line from its first to
// its last one; those below the line's lower bound are already claimed. It is
// read and changed under the engine's lock. A transaction that adds or removes
// an entry within this range drops the front. A front is made only from a line
// that the transaction has not changed, so it stays right if that transaction
// is undone.
type front []ahead

// An ahead is an entry that was read ahead, with the value of its payload's
// row, or "".
type ahead struct {
	engine.Row
	payload string
}

func (a *ahead) id() string { return a.Value[:min(16, len(a.Value))] }

const (
	frontTasks = 64       // only longer lines have a front
	frontBytes = 64 << 10 // of records; the last may exceed it
)

// front returns the next entries of a line, for a claim of one task.
func (in index) front(tx *ledger) front {
	a := tx.accountOf(in.line)
	f := tx.q.fronts[in.prefix]
	for len(f) > 0 && record.ReadFixed(in.tail(f[0].Row)) < a.first[in.priority] {
		f = f[1:]
	}
	if len(f) == 0 {
		f = in.first(tx, frontTasks)
		if !a.moved {
			tx.q.fronts[in.prefix] = f
		}
	}
	return f
}

// first reads up to most entries, or as many as reach frontBytes. It reads no
// payload for a single one, because that is better done when the engine's lock
// is free.
func (in index) first(tx *ledger, most int) front {
	f := make(front, 0, most)
	size := 0
	for row := range in.entries(tx) {
		f = append(f, ahead{Row: row})
		if size += len(row.Value); len(f) == most || size > frontBytes {
			break
		}
	}
	if len(f) > 1 && !tx.careful {
		f.readPayloads(tx)
	}
	return f
}

// readPayloads reads the payloads that are stored near the first task's, which
// are those of tasks that were enqueued together. It stops at a long one.
func (f front) readPayloads(tx *ledger) {
	wanted := make([]*ahead, 0, len(f))
	for i := range f {
		wanted = append(wanted, &f[i])
	}
	slices.SortFunc(wanted, func(a, b *ahead) int { return strings.Compare(a.id(), b.id()) })
	rows := 0
	for row := range tx.ScanFrom(payloadPrefix, payloadPrefix+wanted[0].id()) {
		id := row.Key[len(payloadPrefix):]
		for len(wanted) > 0 && wanted[0].id() < id {
			wanted = wanted[1:]
		}
		if rows++; len(wanted) == 0 || len(row.Value) > smallPayload/4 || rows > 2*len(f) {
			return
		}
		if wanted[0].id() == id {
			wanted[0].payload = row.Value
		}
	}
}

// forget removes what memory holds about an index.
func (in index) forget(tx *ledger) {
	if in.state == Ready {
		delete(tx.q.fronts, in.prefix)
	} else {
		tx.Delete(in.cursor)
	}
}
