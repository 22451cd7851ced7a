package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Check verifies that the records of tasks and the indexes agree: each task has
// all its rows, each row belongs to a task that has such a row, the counts are
// right, each queue is due in time, tasks in progress are leased, and no claim
// waits where a task is ready. It reports the first disagreements it finds; a
// record that cannot be read is an [engine.ErrCorrupt]. It reads everything,
// and keeps little more in memory than the counts of each queue. If progress is
// not nil, Check calls it from time to time with the number of rows read so
// far, and stops with the error that progress returns.
func (q *Queue) Check(in engine.Tx, progress func(rows int64) error) error {
	c := &checker{q: q, tx: &ledger{Tx: in, q: q}, counts: make(map[line]*account), progress: progress}
	if err := checkRows(in); err != nil {
		return err
	}
	c.each(payloadPrefix, c.task)
	for _, prefix := range append(timePrefixes[:corruptState:corruptState], taskPrefix, resultPrefix, keyPrefix, readyPrefix, timedPrefix) {
		if prefix != "" {
			c.each(prefix, func(row engine.Row) { c.row(prefix, row) })
		}
	}
	c.each(timePrefixes[corruptState], c.corrupt)
	for claim := range q.leases.Leases(in, "", "") {
		c.lease(claim.Key, claim.Token)
	}
	c.each(waiterPrefix, c.waiter)
	c.each(accountPrefix, c.account)
	for l, n := range c.counts {
		c.fault("queue %s has %+v and no account", l.queue(), n.stats)
	}
	if c.more > 0 {
		c.faults = append(c.faults, fmt.Errorf("queue: and %d more", c.more))
	}
	return errors.Join(c.faults...)
}

// maxFaults is how many faults Check lists; the rest are counted.
const maxFaults = 1000

type checker struct {
	q        *Queue
	tx       *ledger
	counts   map[line]*account // what was counted of each queue; it must be due by then
	faults   []error
	more     int
	rows     int64
	progress func(int64) error
	stopped  error
}

func (c *checker) fault(format string, args ...any) { c.add(fmt.Errorf("queue: "+format, args...)) }

func (c *checker) add(err error) {
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, err)
	} else {
		c.more++
	}
}

// each calls look for each row. The ledger is reset for each, because it would
// otherwise collect the accounts of all queues.
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

// read reads a task, and reports one that cannot be read.
func (c *checker) read(id uuid.UUID) (t Task, found, readable bool) {
	found, err := t.read(c.tx, id)
	if err != nil {
		c.add(err)
	}
	return t, found, err == nil
}

// must returns a row that a task must have.
func (c *checker) must(t *Task, key string) (value string) {
	row, ok, err := c.tx.Try(key)
	switch {
	case err != nil:
		c.add(err)
	case !ok:
		c.fault("task %s is %s and has no row %q", t.ID, t.State, key)
	}
	return row.Value
}

func (c *checker) countOf(l line) *account {
	n := c.counts[l]
	if n == nil {
		n = &account{stats: Stats{Queue: l.queue()}}
		c.counts[l] = n
	}
	return n
}

// wanted notes when the queue must be due. A queue with times of the wall clock
// is checked every wallCheck.
func (c *checker) wanted(n *account, at time.Time, byWall bool) {
	if byWall {
		at = c.tx.Now().Add(wallCheck)
	}
	n.wanted(c.tx, at, false)
}

// task checks one task, found by its payload's row, and counts it.
func (c *checker) task(row engine.Row) {
	id, ok := idOf(row, false)
	if !ok || row.Key != payloadKey(id) {
		c.add(corrupt(row.Key))
		return
	}
	payload, _, payloadOK := splitPayload(row.Value)
	if !payloadOK {
		c.add(corruptTask(id, row.Key))
	}
	t, found, readable := c.read(id)
	if !readable {
		return
	}
	if !found {
		c.fault("row %q is of no task", row.Key)
		return
	}
	n := c.countOf(t.line)
	*n.stats.of(t.State, t.Priority)++
	if !t.State.Finished() {
		n.bytes += uint64(t.Size)
	}
	if payloadOK && len(payload) != t.Size {
		c.fault("task %s has %d bytes of payload, and says %d", t.ID, len(payload), t.Size)
	}
	if t.result.apart {
		c.must(&t, resultKey(t.ID))
	}
	if t.Key != "" {
		if owner, _, ok := decodeIdem(c.must(&t, idemKey(t.line, t.Key))); ok && owner != t.ID {
			c.fault("task %s is not found by its idempotency key", t.ID)
		}
	}
	c.entry(&t, n)
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
	if last := c.tx.accountOf(t.line).last; t.place > last {
		c.fault("task %s has place %d, and only %d were given", t.ID, t.place, last)
	}
}

// entry checks the entry of a task in its index.
func (c *checker) entry(t *Task, n *account) {
	in, tail := t.entry()
	if tail == "" {
		return
	}
	key := in.prefix + tail
	value := c.must(t, key)
	if tail < in.lowerBound(c.tx) {
		c.fault("entry %q is below the lower bound", key)
	}
	switch {
	case t.State == Delayed:
		c.wanted(n, t.due, t.byWall)
	case t.State.Finished():
		c.wanted(n, t.Until, true)
	case value == "", value == string(t.ID[:])+t.record():
	case len(value) >= 16 && new(Task).decode(t.ID, value[16:]):
		c.fault("task %s has another record in row %q", t.ID, key)
	default:
		c.add(corrupt(key))
	}
}

// row checks that the task of a row exists and has such a row.
func (c *checker) row(prefix string, row engine.Row) {
	id, ok := idOf(row, prefix == readyPrefix || prefix == keyPrefix)
	if prefix == keyPrefix && ok {
		_, _, ok = decodeIdem(row.Value)
	}
	if !ok {
		c.add(corrupt(row.Key))
		return
	}
	t, has, readable := c.read(id)
	switch {
	case !readable:
		return
	case !has:
	case prefix == taskPrefix:
		c.must(&t, payloadKey(id))
	case prefix == resultPrefix:
		has = t.result.apart
	case prefix == keyPrefix:
		has = t.Key != "" && row.Key == idemKey(t.line, t.Key)
	default:
		in, tail := t.entry()
		has = row.Key == in.prefix+tail
	}
	if !has {
		c.fault("row %q is of no task, or of one that has no such row", row.Key)
	}
}

func (c *checker) corrupt(row engine.Row) {
	const tail = 1 + 24 // after the queue's name
	begin := len(timePrefixes[corruptState])
	if len(row.Key) < begin+16+1+tail {
		c.add(corrupt(row.Key))
		return
	}
	id, _ := idOf(row, false)
	n := c.countOf(lineNamed(row.Key[begin : len(row.Key)-tail]))
	n.stats.Corrupt++
	c.wanted(n, time.Time{}, true)
	c.add(corruptTask(id, row.Key))
}

func (c *checker) lease(key string, token uint64) {
	id, err := uuid.Parse(key)
	if err != nil {
		c.add(fmt.Errorf("%w: claim on %q, which is not an id", engine.ErrCorrupt, key))
		return
	}
	if t, found, readable := c.read(id); readable && (!found || t.State != InProgress || t.last().Token != token) {
		c.fault("task %s is leased with token %d, and is not claimed with it", key, token)
	}
}

// waiter checks a claim that waits: it must be in the lines of all its queues,
// and none of them may have a task ready.
func (c *checker) waiter(row engine.Row) {
	w := c.q.room.waiter(record.ReadFixed(row.Key[len(row.Key)-8:]))
	if w == nil || w.ctx.Err() != nil || !c.q.core.Open(c.tx, w.Holder.Session) {
		return // about to leave
	}
	found := false
	for _, l := range w.lines {
		found = found || w.rowIn(l) == row.Key
		if _, ok := c.tx.Get(w.rowIn(l)); !ok {
			c.fault("a claim of %s waits at queue %s and has no place there", w.Holder.Path, l.queue())
		}
		if c.tx.accountOf(l).stats.ReadyTotal() > 0 && !isPaused(c.tx, l) {
			c.fault("a claim of %s waits at queue %s, which has a task ready", w.Holder.Path, l.queue())
		}
	}
	if !found {
		c.fault("place %q is of a claim that waits elsewhere", row.Key)
	}
}

func (c *checker) account(row engine.Row) {
	l := line(row.Key)
	a := c.tx.accountOf(l)
	n := c.countOf(l)
	delete(c.counts, l)
	if a.stats != n.stats {
		c.fault("queue %s counts %+v and has %+v", l.queue(), a.stats, n.stats)
	}
	if a.bytes != n.bytes {
		c.fault("queue %s counts %d bytes and has %d", l.queue(), a.bytes, n.bytes)
	}
	if !n.due.IsZero() && (a.due.IsZero() || a.due.After(n.due)) {
		c.fault("queue %s is due at %v, and has what is due at %v", l.queue(), a.due, n.due)
	}
}
