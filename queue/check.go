package queue

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// Check proves that the records of tasks and the indexes over them agree: each
// task stands where its state says and nowhere else, each index entry is of
// such a task, the counts are right, a queue is due when it has to be, what is
// in progress is leased, and nobody waits where there is something. It reports
// every disagreement it finds; a record that cannot be read is an
// [engine.ErrCorrupt]. It reads all there is.
func (q *Queue) Check(in Tx) error {
	tx := &ledger{Tx: in}
	c := &checker{q: q, tx: tx, counts: make(map[line]*Stats), due: make(map[line]time.Time)}
	q.checkRows(tx, func(err error) { c.faults = append(c.faults, err) })
	for row := range tx.Scan(payloadPrefix) {
		c.try(func() { c.task(row) })
	}
	for _, prefix := range []string{readyPrefix, delayedPrefix, finishedPrefix, deadPrefix} {
		for row := range tx.Scan(prefix) {
			c.try(func() { c.entry(prefix, row) })
		}
	}
	for row := range tx.Scan(taskPrefix) {
		c.try(func() { c.record(row) })
	}
	for row := range tx.Scan(resultPrefix) {
		c.try(func() { c.result(row) })
	}
	for row := range tx.Scan(keyPrefix) {
		c.try(func() { c.key(row) })
	}
	for _, standing := range q.leases.List(tx, "") {
		c.try(func() { c.lease(standing.Key, standing.Token) })
	}
	for row := range tx.Scan(claimantPrefix) {
		c.try(func() { c.claimant(row) })
	}
	for row := range tx.Scan(frontPrefix) {
		c.try(func() { c.front(row) })
	}
	for row := range tx.Scan(statsPrefix) {
		c.try(func() { c.stats(row) })
	}
	for l, s := range c.counts {
		c.fault("queue %s has %+v and no counts", l.queue(), *s)
	}
	return errors.Join(c.faults...)
}

type checker struct {
	q      *Queue
	tx     *ledger
	counts map[line]*Stats
	due    map[line]time.Time // the earliest that each must be due
	faults []error
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("queue: "+format, args...))
}

// try makes one check, with a ledger that has no accounts yet: there may be very
// many. A record that it cannot read is a fault.
func (c *checker) try(check func()) {
	*c.tx = ledger{Tx: c.tx.Tx}
	var err error
	func() {
		defer caught(&err)
		check()
	}()
	if err != nil {
		c.faults = append(c.faults, err)
	}
}

// must finds that there is a row.
func (c *checker) must(t Task, key string) {
	if _, ok := c.tx.Get(key); !ok {
		c.fault("task %s is %s and has no row %q", t.ID, t.State, key)
	}
}

// task looks at one task, by its payload: what it must have is there, and it is
// counted.
func (c *checker) task(row engine.Row) {
	t, ok := getTask(c.tx, idOf(row.Key, row.Key[len(payloadPrefix):]))
	if !ok {
		c.fault("row %q is of no task", row.Key)
		return
	}
	l := t.line
	if c.counts[l] == nil {
		c.counts[l] = &Stats{Queue: t.Queue}
	}
	*c.counts[l].of(&t)++
	if payload, _ := payloadOf(row); len(payload) != t.Size {
		c.fault("task %s has %d bytes of payload, and says %d", t.ID, len(payload), t.Size)
	}
	if t.result.apart {
		c.must(t, resultKey(t.ID))
	}
	if key := t.entryKey(); key != "" {
		entry, ok := c.tx.Get(key)
		value := ""
		if t.State == Ready {
			value = string(t.ID[:]) + t.record()
		}
		switch {
		case !ok, t.State == Ready && !strings.HasPrefix(entry.Value, string(t.ID[:])):
			c.fault("task %s is %s and has no row %q", t.ID, t.State, key)
		case entry.Value != value:
			c.fault("task %s has another record in row %q", t.ID, key)
		}
	}
	if t.State == Dead {
		c.must(t, t.deadKey())
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
	if given := readPlaces(c.tx); t.place > given.last {
		c.fault("task %s has place %d, and only %d were given", t.ID, t.place, given.last)
	}
	if t.Key != "" {
		if e, ok := getEnqueued(c.tx, l, t.Key); !ok || e.ID != t.ID {
			c.fault("task %s is not found by its idempotency key", t.ID)
		}
	}
}

// entry looks at one entry of an index: its task stands just there, and behind
// the cursor.
func (c *checker) entry(prefix string, row engine.Row) {
	id := index{prefix: prefix}.idAt(row)
	t, ok := getTask(c.tx, id)
	var in index
	key := ""
	switch {
	case !ok:
	case prefix == deadPrefix && t.State == Dead:
		in, key = deadIndex(t.line), t.deadKey()
	case prefix == readyPrefix:
		in, key = readyIndex(t.line, t.Priority), t.entryKey()
	case prefix == delayedPrefix:
		in, key = delayedIndex(t.line), t.entryKey()
	case prefix == finishedPrefix:
		in, key = finishedIndex(t.line), t.entryKey()
	}
	if key != row.Key {
		c.fault("entry %q is of task %s, which does not stand there", row.Key, id)
		return
	}
	if in.ofReady() {
		in.taskAt(c.tx, row) // that it can be read; c.task has compared it
	}
	if in.tail(row) < in.from(c.tx) {
		c.fault("entry %q stands before the cursor", row.Key)
	}
	if prefix == delayedPrefix || prefix == finishedPrefix {
		at := timeOf(row)
		if due := c.due[t.line]; due.IsZero() || at.Before(due) {
			c.due[t.line] = at
		}
	}
}

// record looks at a record that is apart: its task has a payload.
func (c *checker) record(row engine.Row) {
	t, _ := getTask(c.tx, idOf(row.Key, row.Key[len(taskPrefix):]))
	c.must(t, payloadKey(t.ID))
}

// result looks at a result that is apart: its task is there, and says so.
func (c *checker) result(row engine.Row) {
	t, ok := getTask(c.tx, idOf(row.Key, row.Key[len(resultPrefix):]))
	switch {
	case !ok:
		c.fault("row %q is of no task", row.Key)
	case !t.result.apart:
		c.fault("task %s is %s and has a result apart", t.ID, t.State)
	}
}

func (c *checker) key(row engine.Row) {
	const run = len(keyPrefix) + 16 // whose bytes may be any
	name, key, ok := strings.Cut(row.Key[min(len(row.Key), run):], "\x00")
	if !ok {
		panic(corrupt(row.Key, errEntry))
	}
	l := lineNamed(row.Key[len(keyPrefix):run] + name)
	e, _ := getEnqueued(c.tx, l, key)
	if t, ok := getTask(c.tx, e.ID); !ok || t.Key != key || t.line != l {
		c.fault("idempotency key %q of queue %s is of no task", key, name)
	}
}

func (c *checker) lease(key string, token uint64) {
	id, err := uuid.Parse(key)
	if err != nil {
		panic(corrupt(key, err))
	}
	t, ok := getTask(c.tx, id)
	if !ok || t.State != InProgress || t.last().Token != token {
		c.fault("task %s is leased with token %d, and is not claimed with it", key, token)
	}
}

// claimant looks at one who waits: at all its queues, and where nothing is.
func (c *checker) claimant(row engine.Row) {
	w := decodeJSON[claimant](row)
	found := false
	for _, l := range w.Lines {
		key := claimantKeys(line(l)) + record.Fixed(w.Place)
		found = found || key == row.Key
		if _, ok := c.tx.Get(key); !ok {
			c.fault("call %s waits at queue %s and has no place there", w.Call, line(l).queue())
		}
		if c.tx.accountOf(line(l)).stats.ReadyTotal() > 0 && c.q.core.Asking(w.Call) && c.q.core.Open(c.tx, w.Holder.Session) {
			c.fault("call %s waits at queue %s, which has a task ready", w.Call, line(l).queue())
		}
	}
	if !found {
		c.fault("place %q says it is elsewhere", row.Key)
	}
}

func (c *checker) stats(row engine.Row) {
	l := line(row.Key)
	a := c.tx.accountOf(l)
	if was := c.counts[l]; was == nil || a.stats != *was {
		c.fault("queue %s counts %+v and has %+v", l.queue(), a.stats, was)
	}
	delete(c.counts, l)
	if at := c.due[l]; !at.IsZero() && (a.due.IsZero() || a.due.After(at)) {
		c.fault("queue %s is due at %v, and has what is due at %v", l.queue(), a.due, at)
	}
}
