package queue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Check proves that the records of tasks and the indexes over them agree: each
// task is in the index of its state and in no other, each entry is of such a task,
// the counts are right, a queue is due when it has to be, what is in progress is
// leased, and no claim waits where a task is ready. It reports the first
// disagreements it finds; a record that cannot be read is an [engine.ErrCorrupt].
// It reads everything, and keeps little in memory but the counts of each queue.
// Now and then it calls progress with how many rows it has read, if that is not
// nil, and ends with the error that this returns.
func (q *Queue) Check(in engine.Tx, progress func(rows int64) error) error {
	c := &checker{q: q, tx: &ledger{Tx: in, q: q}, counts: make(map[line]*counted), progress: progress}
	if err := checkRows(in); err != nil {
		return err
	}
	c.places, _ = readPlaces(in)
	c.each(payloadPrefix, c.task)
	for _, prefix := range []string{readyPrefix, delayedPrefix, timedPrefix, finishedPrefix, deadPrefix, corruptPrefix} {
		c.each(prefix, func(row engine.Row) { c.entry(prefix, row) })
	}
	c.each(taskPrefix, c.record)
	c.each(resultPrefix, c.result)
	c.each(keyPrefix, c.key)
	for claim := range q.leases.Leases(in, "", "") {
		c.lease(claim.Key, claim.Token)
	}
	c.each(waiterPrefix, c.waiter)
	c.each(frontPrefix, c.front)
	c.each(accountPrefix, c.account)
	for l, n := range c.counts {
		c.fault("queue %s has %+v and no account", l.queue(), n.Stats)
	}
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Errorf("queue: and %d more", c.more))
	}
	return errors.Join(c.faults...)
}

// maxFaults is how many faults Check reports one by one.
const maxFaults = 1000

type checker struct {
	q        *Queue
	tx       *ledger
	places   places
	counts   map[line]*counted
	faults   []error
	more     int
	rows     int64
	progress func(int64) error
	stopped  error
}

// A counted is what Check has counted of a queue.
type counted struct {
	Stats
	bytes      uint64
	due, alarm time.Time // the earliest of each clock
}

func (c *checker) fault(format string, args ...any) { c.add(fmt.Errorf("queue: "+format, args...)) }

func (c *checker) add(err error) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, err)
	} else {
		c.more++
	}
}

// each looks at each row, with a ledger that has no accounts yet, as there may be
// very many.
func (c *checker) each(prefix string, look func(engine.Row)) {
	if c.stopped != nil {
		return
	}
	for row := range c.tx.Scan(prefix) {
		if c.rows++; c.rows%10_000 == 0 && c.progress != nil {
			if c.stopped = c.progress(c.rows); c.stopped != nil {
				c.add(c.stopped)
				return
			}
		}
		*c.tx = ledger{Tx: c.tx.Tx, q: c.q}
		look(row)
	}
}

// getTask reads a task, and reports one that cannot be read.
func (c *checker) getTask(id uuid.UUID) (t Task, found, readable bool) {
	found, err := t.read(c.tx, id)
	if err != nil {
		c.add(err)
	}
	return t, found, err == nil
}

// id reads the id at the end of a row's key.
func (c *checker) id(row engine.Row, prefix string) (id uuid.UUID, ok bool) {
	tail := row.Key[len(prefix):]
	if len(tail) != 16 {
		c.add(corrupt(row.Key))
		return uuid.Nil, false
	}
	return uuid.UUID([]byte(tail)), true
}

func (c *checker) must(t *Task, key string) {
	if _, ok := c.tx.Get(key); !ok {
		c.fault("task %s is %s and has no row %q", t.ID, t.State, key)
	}
}

func (c *checker) countOf(l line) *counted {
	n := c.counts[l]
	if n == nil {
		n = &counted{Stats: Stats{Queue: l.queue()}}
		c.counts[l] = n
	}
	return n
}

// task looks at one task, by its payload: what it must have is there, and it is
// counted.
func (c *checker) task(row engine.Row) {
	id, ok := c.id(row, payloadPrefix)
	if !ok {
		return
	}
	payload, _, payloadOK := splitPayload(row.Value)
	if !payloadOK {
		c.add(corruptTask(id, row.Key))
	}
	t, found, readable := c.getTask(id)
	if !readable {
		return
	}
	if !found {
		c.fault("row %q is of no task", row.Key)
		return
	}
	n := c.countOf(t.line)
	*n.of(&t)++
	if !t.State.Finished() {
		n.bytes += uint64(t.Size)
	}
	if payloadOK && len(payload) != t.Size {
		c.fault("task %s has %d bytes of payload, and says %d", t.ID, len(payload), t.Size)
	}
	if t.result.apart {
		c.must(&t, resultKey(t.ID))
	}
	if in, tail := t.entry(); tail != "" {
		c.must(&t, in.prefix+tail)
		if row, ok := c.tx.Get(in.prefix + tail); ok && t.State == Ready && row.Value != string(t.ID[:])+t.record() {
			if len(row.Value) >= 16 && new(Task).decode(t.ID, row.Value[16:], t.line) {
				c.fault("task %s has another record in row %q", t.ID, row.Key)
			} else {
				c.add(corrupt(row.Key))
			}
		}
		if t.State == Dead {
			c.must(&t, deadIndex(t.line).prefix+tail)
		}
	}
	if _, ok := c.q.leases.Get(c.tx, t.ID.String()); ok != (t.State == InProgress) {
		c.fault("task %s is %s, and leased: %v", t.ID, t.State, ok)
	}
	if t.Attempt > t.MaxAttempts {
		c.fault("task %s has begun %d times, of %d", t.ID, t.Attempt, t.MaxAttempts)
	}
	for i, a := range t.Attempts {
		if open := t.State == InProgress && i == len(t.Attempts)-1; a.EndedAt.IsZero() != open {
			c.fault("task %s is %s, and its attempt %d under way: %v", t.ID, t.State, i+1, !open)
		}
	}
	if t.place > c.places.last {
		c.fault("task %s has place %d, and only %d were given", t.ID, t.place, c.places.last)
	}
	if t.Key != "" {
		row, _ := c.tx.Get(idemKey(t.line, t.Key))
		if id, _, ok := decodeIdem(row.Value); row.Key != "" && ok && id != t.ID || row.Key == "" {
			c.fault("task %s is not found by its idempotency key", t.ID)
		}
	}
}

// entry looks at one entry of an index: its task is in the state of that index,
// at that place, and the entry is not below the lower bound.
func (c *checker) entry(prefix string, row engine.Row) {
	size := 1 + 24 // behind the queue's name
	if prefix == readyPrefix {
		size = 2 + 8
	}
	const name = 16 + 1 // at least
	if len(row.Key) < len(prefix)+name+size || row.Key[len(row.Key)-size] != 0 {
		c.add(corrupt(row.Key))
		return
	}
	l := lineNamed(row.Key[len(prefix) : len(row.Key)-size])
	in := indexByTime(prefix, l)
	var id uuid.UUID
	if prefix == readyPrefix {
		in = readyIndex(l, MaxPriority-int(row.Key[len(row.Key)-9]-'0'))
		if len(row.Value) < 16 {
			c.add(corrupt(row.Key))
			return
		}
		id = uuid.UUID([]byte(row.Value[:16]))
	} else {
		_, id, _ = in.timeAndID(row)
	}
	if in.tail(row) < in.lowerBound(c.tx) {
		c.fault("entry %q is below the lower bound", row.Key)
	}
	at, _, _ := in.timeAndID(row)
	n := c.countOf(l)
	if prefix == corruptPrefix {
		n.Corrupt++
		n.wanted(at, true)
		c.add(corruptTask(id, row.Key))
		return
	}
	if prefix == delayedPrefix || prefix == timedPrefix || prefix == finishedPrefix {
		n.wanted(at, prefix != delayedPrefix)
	}
	t, found, readable := c.getTask(id)
	if !readable {
		return
	}
	is, tail := t.entry()
	if prefix == deadPrefix && t.State == Dead {
		is = deadIndex(t.line)
	}
	if !found || is.prefix+tail != row.Key {
		c.fault("entry %q is of task %s, which is not in that index", row.Key, id)
	}
}

// wanted is the account's.
func (n *counted) wanted(at time.Time, byWall bool) {
	a := account{due: n.due, alarm: n.alarm}
	a.wanted(at, byWall)
	n.due, n.alarm = a.due, a.alarm
}

// record looks at a record with a row of its own: its task has a payload.
func (c *checker) record(row engine.Row) {
	if id, ok := c.id(row, taskPrefix); ok {
		if t, _, readable := c.getTask(id); readable {
			c.must(&t, payloadKey(id))
		}
	}
}

// result looks at a result with a row of its own: its task is there, and says so.
func (c *checker) result(row engine.Row) {
	id, ok := c.id(row, resultPrefix)
	if !ok {
		return
	}
	switch t, found, readable := c.getTask(id); {
	case !readable:
	case !found:
		c.fault("row %q is of no task", row.Key)
	case !t.result.apart:
		c.fault("task %s is %s and has a result of no use", t.ID, t.State)
	}
}

func (c *checker) key(row engine.Row) {
	const run = len(keyPrefix) + 16 // whose bytes may be any
	name, key, ok := strings.Cut(row.Key[min(len(row.Key), run):], "\x00")
	id, _, readable := decodeIdem(row.Value)
	if !ok || !readable {
		c.add(corrupt(row.Key))
		return
	}
	l := lineNamed(row.Key[len(keyPrefix):run] + name)
	if t, found, readable := c.getTask(id); readable && (!found || t.Key != key || t.line != l) {
		c.fault("idempotency key %q of queue %s is of no task", key, name)
	}
}

func (c *checker) lease(key string, token uint64) {
	id, err := uuid.Parse(key)
	if err != nil {
		c.add(fmt.Errorf("%w: claim on %q, which is not an id", engine.ErrCorrupt, key))
		return
	}
	if t, found, readable := c.getTask(id); readable && (!found || t.State != InProgress || t.last().Token != token) {
		c.fault("task %s is leased with token %d, and is not claimed with it", key, token)
	}
}

// waiter looks at a claim that waits: in the lines of all its queues, where no
// task is ready.
func (c *checker) waiter(row engine.Row) {
	w := c.q.room.waiter(record.ReadFixed(row.Key[len(row.Key)-8:]))
	if w == nil || w.ctx.Err() != nil || !c.q.core.Open(c.tx, w.Holder.Session) {
		return // on its way out
	}
	found := false
	for _, l := range w.lines {
		found = found || w.rowIn(l) == row.Key
		if _, ok := c.tx.Get(w.rowIn(l)); !ok {
			c.fault("a claim of %s waits at queue %s and has no place there", w.Holder.Path, l.queue())
		}
		if c.tx.accountOf(l).stats.ReadyTotal() > 0 {
			c.fault("a claim of %s waits at queue %s, which has a task ready", w.Holder.Path, l.queue())
		}
	}
	if !found {
		c.fault("place %q is of a claim that waits elsewhere", row.Key)
	}
}

// front looks whether a front has what is in its line.
func (c *checker) front(row engine.Row) {
	prefix := row.Key[len(frontPrefix):]
	kind := len(prefix) - 2
	in := readyIndex(lineNamed(prefix[len(readyPrefix):kind]), MaxPriority-int(prefix[kind+1]-'0'))
	f := front(row.Value)
	if !f.valid() {
		c.add(corrupt(row.Key))
		return
	}
	var has, line []engine.Row
	for i := f.at(in.lowerBound(c.tx)); i < f.len(); i++ {
		p := f.place(i)
		has = append(has, engine.Row{Key: in.prefix + p.tail, Value: p.value})
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
	if !slices.Equal(has, line) {
		c.fault("front %q is not what is in the line", row.Key)
	}
}

func (c *checker) account(row engine.Row) {
	l := line(row.Key)
	a := c.tx.accountOf(l)
	n := c.counts[l]
	if n == nil {
		n = new(counted)
	}
	delete(c.counts, l)
	if a.stats != n.Stats {
		c.fault("queue %s counts %+v and has %+v", l.queue(), a.stats, n.Stats)
	}
	if a.bytes != n.bytes {
		c.fault("queue %s counts %d bytes and has %d", l.queue(), a.bytes, n.bytes)
	}
	late := func(is, want time.Time) bool { return !want.IsZero() && (is.IsZero() || is.After(want)) }
	if late(a.due, n.due) || late(a.alarm, n.alarm) {
		c.fault("queue %s is due at %v and %v, and has what is due at %v and %v", l.queue(), a.due, a.alarm, n.due, n.alarm)
	}
	if _, ok := c.tx.Get(alarmRow(l, a.alarm)); !ok && !a.alarm.IsZero() {
		c.fault("queue %s is due at %v and has no alarm", l.queue(), a.alarm)
	}
	if _, ok := c.tx.Get(alarmKey); !ok && !a.alarm.IsZero() {
		c.fault("queue %s has an alarm that nobody looks at", l.queue())
	}
}
