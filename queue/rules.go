package queue

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

type holder = registry.Holder

// Causes by which an attempt ends, beside those of package registry.
const (
	causeNack    = "nack"
	causeAbandon = "abandoned"
	causeCancel  = "cancelled"
)

// enqueue writes a new task. With an idempotency key that is in use it gives
// the task that has it.
func (q *Queue) enqueue(tx Tx, n NewTask, id uuid.UUID, hash [32]byte) (Task, error) {
	l := lineOf(n.Run, n.Queue)
	if n.Key != "" {
		if e, ok := getEnqueued(tx, l, n.Key); ok {
			if e.Hash != hash {
				return Task{}, ErrKeyReused
			}
			if t, ok := getTask(tx, e.ID); ok {
				return t, nil
			}
		}
		enqueued{id, hash}.put(tx, l, n.Key)
	}
	now := tx.Now()
	t := Task{
		ID: id, Run: n.Run, Queue: n.Queue, Priority: n.Priority, MaxAttempts: n.MaxAttempts,
		Size: len(n.Payload), Key: n.Key, EnqueuedAt: now, EnqueuedBy: n.By,
	}
	tx.Put(engine.Row{Key: payloadKey(id), Value: string(n.Payload)})
	due := n.RunAt
	if due.IsZero() {
		due = now.Add(n.Delay)
	}
	return q.place(tx, t, due), nil
}

// place makes a task ready, or delayed until due. It is the only way into
// either state.
func (q *Queue) place(tx Tx, t Task, due time.Time) Task {
	if due.After(tx.Now()) {
		t.State, t.DueAt = Delayed, due
		tx.Put(engine.Row{Key: delayedKeys(t.line()) + atTime(due, t.ID)})
		return q.enter(tx, t, due)
	}
	t.State, t.DueAt, t.place = Ready, time.Time{}, nextPlace(tx)
	if q.hand(tx, &t) {
		return t
	}
	tx.Put(engine.Row{Key: readyKey(t), Value: string(t.ID[:])})
	return q.enter(tx, t, time.Time{})
}

// enter counts a task in the state it has come to, and writes it. The queue is
// due no later than attention says, if that is not zero.
func (q *Queue) enter(tx Tx, t Task, attention time.Time) Task {
	l := t.line()
	s, due := getStats(tx, l), dueOf(tx, l)
	*s.of(t)++
	if due.IsZero() || !attention.IsZero() && attention.Before(due) {
		due = attention
	}
	putStats(tx, l, s, due)
	putTask(tx, t)
	return t
}

// leave takes a task out of the state it is in, with what that has in the
// indexes. Whoever calls it enters the task somewhere else, or forgets it.
func (q *Queue) leave(tx Tx, t Task) {
	l := t.line()
	s := getStats(tx, l)
	*s.of(t)--
	putStats(tx, l, s, dueOf(tx, l))
	switch t.State {
	case Ready:
		tx.Delete(readyKey(t))
	case Delayed:
		tx.Delete(delayedKeys(l) + atTime(t.DueAt, t.ID))
	case Dead:
		tx.Delete(deadKeys(l) + string(t.ID[:]))
		fallthrough
	case Completed, Failed, Cancelled:
		tx.Delete(finishedKeys(l) + atTime(t.Until, t.ID))
	}
}

// claimUp gives up to count ready tasks of the lines to a holder, the highest
// priority first, among equals the oldest, and no more than an answer can carry.
func (q *Queue) claimUp(tx Tx, lines []line, h holder, ttl time.Duration, count int) (tasks []Claimed) {
	size := 0
	for len(tasks) < count {
		t, ok := next(tx, lines)
		if size += t.Size; !ok || len(tasks) > 0 && size > MaxClaimBytes {
			break
		}
		q.leave(tx, t)
		tx.Touch(engine.Row{Key: cursorKey(t.line(), t.Priority), Value: bigEndian(t.place)})
		tasks = append(tasks, q.begin(tx, t, h, ttl))
	}
	return tasks
}

// next finds the ready task that is first over several lines.
func next(tx Tx, lines []line) (first Task, ok bool) {
	for priority := MaxPriority; priority >= 0 && !ok; priority-- {
		for _, l := range lines {
			if getStats(tx, l).Ready[priority] == 0 {
				continue
			}
			if t, found := head(tx, l, priority); found && (!ok || t.place < first.place) {
				first, ok = t, true
			}
		}
	}
	return first, ok
}

// head is the first ready task of one priority of a line. It seeks from where
// the last was claimed: what lies before is gone, and to pass over that again
// would cost more with each claim.
func head(tx Tx, l line, priority int) (Task, bool) {
	prefix := readyKeys(l, priority)
	from := prefix
	if row, ok := tx.Get(cursorKey(l, priority)); ok {
		from += row.Value
	}
	for row := range tx.ScanFrom(prefix, from) {
		return getTask(tx, uuid.UUID([]byte(row.Value)))
	}
	return Task{}, false
}

// begin starts an execution: the attempt is counted and the lease granted in
// the transaction that takes the task out of the line.
func (q *Queue) begin(tx Tx, t Task, h holder, ttl time.Duration) Claimed {
	lease := q.leases.Grant(tx, t.ID.String(), h, ttl)
	t.State, t.place = InProgress, 0
	t.Attempt++
	t.Attempts = append(t.Attempts, Attempt{Token: lease.Token, Actor: h.Actor, Path: h.Path, BeganAt: tx.Now()})
	t = q.enter(tx, t, time.Time{})
	return Claimed{Task: t, Token: lease.Token, Deadline: lease.Deadline}
}

// hand gives a task that becomes ready to the first who waits for one there,
// if there is anybody. Who is gone is removed on the way.
func (q *Queue) hand(tx Tx, t *Task) bool {
	for c := range claimants(tx, t.line()) {
		c.remove(tx)
		if !q.core.Asking(c.Claim) || !q.core.Open(tx, c.Holder.Session) {
			continue
		}
		claimed := q.begin(tx, *t, c.Holder, c.TTL)
		*t = claimed.Task
		tx.Touch(engine.Row{Key: givenKey(c.Claim), Value: string(t.ID[:]), Owner: c.Holder.Session})
		return true
	}
	return false
}

// held finds the claim that (id, token) names and checks that it is the
// actor's. What the caller may know of a failure is in the error.
func (q *Queue) held(tx Tx, h holder, run, id uuid.UUID, token uint64) (Task, registry.Lease, error) {
	t, ok := getTask(tx, id)
	if !ok || t.Run != run {
		return Task{}, registry.Lease{}, notFound(id)
	}
	lease, ok := q.leases.Get(tx, id.String())
	if !ok || lease.Token != token || lease.Holder.Actor != h.Actor {
		return Task{}, registry.Lease{}, &StaleError{Task: t, Token: token}
	}
	return t, lease, nil
}

// submit finishes a task under its claim, in one transaction. The same submit
// again gets the same answer.
func (q *Queue) submit(tx Tx, h holder, run, id uuid.UUID, token uint64, state State, result []byte) (Task, error) {
	t, lease, err := q.held(tx, h, run, id, token)
	if err != nil {
		if done, ok := getTask(tx, id); ok && done.Run == run && done.State == state && done.last().Token == token && done.last().Actor == h.Actor {
			return done, nil
		}
		return Task{}, err
	}
	q.leases.Free(tx, lease, registry.Released)
	tx.Put(engine.Row{Key: resultKey(id), Value: string(result)})
	return q.finish(tx, t, state, state.String()), nil
}

// finish moves a task to a final state.
func (q *Queue) finish(tx Tx, t Task, state State, cause string) Task {
	q.leave(tx, t)
	q.endAttempt(tx, &t, cause)
	t.State, t.FinishedAt, t.Until = state, tx.Now(), tx.Now().Add(q.retention(state))
	l := t.line()
	tx.Put(engine.Row{Key: finishedKeys(l) + atTime(t.Until, t.ID)})
	if state == Dead {
		tx.Put(engine.Row{Key: deadKeys(l) + string(t.ID[:])})
	}
	return q.enter(tx, t, t.Until)
}

func (q *Queue) endAttempt(tx Tx, t *Task, cause string) {
	if t.State == InProgress {
		t.last().EndedAt, t.last().Cause = tx.Now(), cause
	}
}

// giveBack ends an execution without a result: the task is retried after
// delay, or is dead if it may not begin again.
func (q *Queue) giveBack(tx Tx, t Task, cause string, delay time.Duration) Task {
	if t.Attempt >= t.MaxAttempts {
		return q.finish(tx, t, Dead, cause)
	}
	q.leave(tx, t)
	q.endAttempt(tx, &t, cause)
	return q.place(tx, t, tx.Now().Add(delay))
}

// freed is called by the lease rules, in their transaction, when a claim ends
// otherwise than by its own hand: by its ttl, its session's end or an
// operator.
func (q *Queue) freed(tx registry.Tx, lease registry.Lease, cause registry.Cause) {
	if cause == registry.Released {
		return
	}
	qtx := tx.(Tx)
	t, ok := getTask(qtx, uuid.MustParse(lease.Key))
	if !ok {
		return
	}
	var delay time.Duration
	if cause == registry.Expired {
		delay = q.backoff(t.Attempt)
	}
	q.giveBack(qtx, t, string(cause), delay)
}

// cancel finishes a task that is not finished; a claim on it ends.
func (q *Queue) cancel(tx Tx, run, id uuid.UUID) (Task, error) {
	t, ok := getTask(tx, id)
	if !ok || t.Run != run {
		return Task{}, notFound(id)
	}
	if t.State.Finished() {
		return t, nil
	}
	if lease, ok := q.leases.Get(tx, id.String()); ok {
		q.leases.Free(tx, lease, registry.Released)
	}
	return q.finish(tx, t, Cancelled, causeCancel), nil
}

// redrive gives a dead task all its attempts again.
func (q *Queue) redrive(tx Tx, t Task) Task {
	q.leave(tx, t)
	t.Attempt, t.FinishedAt, t.Until = 0, time.Time{}, time.Time{}
	t.Attempts = nil
	return q.place(tx, t, time.Time{})
}

// forget removes every row of a finished task.
func (q *Queue) forget(tx Tx, t Task) {
	q.leave(tx, t)
	if t.Key != "" {
		tx.Delete(idemKey(t.line(), t.Key))
	}
	tx.Delete(taskKey(t.ID))
	tx.Delete(payloadKey(t.ID))
	tx.Delete(resultKey(t.ID))
}

// tendBatch bounds what one transaction of Tend does for a queue.
const tendBatch = 100

// Tend does what a due row of this package wants: delays end, and finished
// tasks are forgotten. It reports false for a row of another package.
func (q *Queue) Tend(tx Tx, row engine.Row) bool {
	switch {
	case hasPrefix(row.Key, statsPrefix):
		q.tendLine(tx, line(row.Key[len(statsPrefix):]))
	case hasPrefix(row.Key, claimPrefix):
		tx.Delete(row.Key)
	default:
		return false
	}
	return true
}

func (q *Queue) tendLine(tx Tx, l line) {
	now := tx.Now()
	n := 0
	var next time.Time // the earliest that is not due yet
	for _, index := range []struct {
		prefix string
		do     func(Task)
	}{
		{delayedKeys(l), func(t Task) { q.leave(tx, t); q.place(tx, t, now) }},
		{finishedKeys(l), func(t Task) { q.forget(tx, t) }},
	} {
		for row := range tx.Scan(index.prefix) {
			at, id := timeOf(row.Key)
			if at.After(now) || n == tendBatch {
				if next.IsZero() || at.Before(next) {
					next = at
				}
				break
			}
			n++
			if t, ok := getTask(tx, id); ok {
				index.do(t)
			}
		}
	}
	putStats(tx, l, getStats(tx, l), next)
}

func hasPrefix(s, prefix string) bool { return len(s) >= len(prefix) && s[:len(prefix)] == prefix }
