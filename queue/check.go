package queue

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Check proves that the records of tasks and the indexes over them agree: each
// task stands where its state says and nowhere else, each index entry is of
// such a task, the counts are right, and what is in progress is leased. It
// reports every disagreement it finds; a record that cannot be read is an
// [engine.ErrCorrupt]. It reads all there is.
func (q *Queue) Check(tx Tx) error {
	c := &checker{q: q, tx: tx, counts: make(map[line]*Stats)}
	for row := range tx.Scan(taskPrefix) {
		c.task(row)
	}
	c.index(readyPrefix, func(row engine.Row) (uuid.UUID, string) {
		id := uuid.UUID([]byte(row.Value))
		return id, readyKey(c.read(id))
	})
	c.index(delayedPrefix, func(row engine.Row) (uuid.UUID, string) {
		_, id := timeOf(row.Key)
		t := c.read(id)
		return id, delayedKeys(t.line()) + atTime(t.DueAt, id)
	})
	c.index(finishedPrefix, func(row engine.Row) (uuid.UUID, string) {
		_, id := timeOf(row.Key)
		t := c.read(id)
		return id, finishedKeys(t.line()) + atTime(t.Until, id)
	})
	c.index(deadPrefix, func(row engine.Row) (uuid.UUID, string) {
		id := uuid.UUID([]byte(row.Key[len(row.Key)-16:]))
		return id, deadKeys(c.read(id).line()) + string(id[:])
	})
	c.leases()
	c.stats()
	return errors.Join(c.faults...)
}

type checker struct {
	q      *Queue
	tx     Tx
	counts map[line]*Stats
	faults []error
}

func (c *checker) fault(format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("queue: "+format, args...))
}

func (c *checker) read(id uuid.UUID) Task {
	row, _ := c.tx.Get(taskKey(id))
	t, _ := decodeTask(id, row.Value)
	return t
}

// task looks at one record: what it must have is there, and it is counted.
func (c *checker) task(row engine.Row) {
	id := uuid.UUID([]byte(row.Key[len(taskPrefix):]))
	t, err := decodeTask(id, row.Value)
	if err != nil {
		c.faults = append(c.faults, fmt.Errorf("%w: %q: %v", engine.ErrCorrupt, row.Key, err))
		return
	}
	l := t.line()
	if c.counts[l] == nil {
		c.counts[l] = &Stats{Queue: t.Queue}
	}
	*c.counts[l].of(t)++
	must := func(key string) {
		if _, ok := c.tx.Get(key); !ok {
			c.fault("task %s is %s and has no row %q", id, t.State, key)
		}
	}
	must(payloadKey(id))
	switch t.State {
	case Ready:
		must(readyKey(t))
	case Delayed:
		must(delayedKeys(l) + atTime(t.DueAt, id))
	case InProgress:
		if _, ok := c.q.leases.Get(c.tx, id.String()); !ok {
			c.fault("task %s is in progress and nobody's", id)
		}
	case Dead:
		must(deadKeys(l) + string(id[:]))
		fallthrough
	default:
		must(finishedKeys(l) + atTime(t.Until, id))
	}
	if t.Attempt != len(t.Attempts) || t.Attempt > t.MaxAttempts {
		c.fault("task %s counts %d attempts of %d and tells of %d", id, t.Attempt, t.MaxAttempts, len(t.Attempts))
	}
	if open := t.Attempt > 0 && t.last().EndedAt.IsZero(); open != (t.State == InProgress) {
		c.fault("task %s is %s, its last attempt under way: %v", id, t.State, open)
	}
	if t.Key != "" {
		if e, ok := getEnqueued(c.tx, l, t.Key); !ok || e.ID != id {
			c.fault("task %s is not found by its idempotency key", id)
		}
	}
}

// index looks at every entry of an index: its task must stand just there.
func (c *checker) index(prefix string, where func(engine.Row) (uuid.UUID, string)) {
	state := strings.TrimSuffix(strings.TrimPrefix(prefix, engine.Cold), "/")
	for row := range c.tx.Scan(prefix) {
		id, key := where(row)
		t := c.read(id)
		right := t.State.Finished() && state == "finished"
		if t.State != 0 && !right {
			right = t.State.String() == state
		}
		if !right || key != row.Key {
			c.fault("%s entry %q is of task %s, which does not stand there", state, row.Key, id)
		}
	}
}

func (c *checker) leases() {
	for _, standing := range c.q.leases.List(c.tx, "") {
		t := c.read(uuid.MustParse(standing.Key))
		if t.State != InProgress || t.last().Token != standing.Token {
			c.fault("task %s is leased with token %d, and is not claimed with it", standing.Key, standing.Token)
		}
	}
}

func (c *checker) stats() {
	for row := range c.tx.Scan(statsPrefix) {
		l := line(row.Key[len(statsPrefix):])
		s, err := decodeStats(l.queue(), row.Value)
		if err != nil {
			c.faults = append(c.faults, fmt.Errorf("%w: %q: %v", engine.ErrCorrupt, row.Key, err))
			continue
		}
		if was := c.counts[l]; was == nil || s != *was {
			c.fault("queue %s counts %+v and has %+v", l.queue(), s, was)
		}
		delete(c.counts, l)
		due := row.Due
		if (s.Delayed+s.Completed+s.Failed+s.Dead+s.Cancelled > 0) && due.IsZero() {
			c.fault("queue %s has what will be due, and is not", l.queue())
		}
	}
	for l, s := range c.counts {
		c.fault("queue %s has %+v and no counts", l.queue(), *s)
	}
}
