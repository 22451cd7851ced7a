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
			if t, ok := getTask(tx, e.ID); ok && e.Hash == hash {
				return t, nil
			} else if ok {
				return Task{}, ErrKeyReused
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

// place makes a task ready, at the end of its line, or delayed until due.
func (q *Queue) place(tx Tx, t Task, due time.Time) Task {
	if due.After(tx.Now()) {
		t.State, t.DueAt = Delayed, due
		return q.enter(tx, t, due)
	}
	t.place = nextPlace(tx)
	return q.ready(tx, t)
}

// ready makes a task ready at its place, or hands it to who waits for it. With
// place it is the only way to become ready: so nobody waits where there is
// something.
func (q *Queue) ready(tx Tx, t Task) Task {
	t.State, t.DueAt = Ready, time.Time{}
	if t, ok := q.hand(tx, t); ok {
		return t
	}
	l := t.line()
	if s, _ := getStats(tx, l); s.Ready[t.Priority] == 0 {
		readyIndex(l, t.Priority).passed(tx, bigEndian(t.place))
	}
	return q.enter(tx, t, time.Time{})
}

// enter writes a task in the state it has come to, with what that has in the
// indexes. The queue is due no later than attention says, if that is not zero.
func (q *Queue) enter(tx Tx, t Task, attention time.Time) Task {
	l := t.line()
	s, due := getStats(tx, l)
	*s.of(t)++
	if due.IsZero() || !attention.IsZero() && attention.Before(due) {
		due = attention
	}
	putStats(tx, l, s, due)
	putTask(tx, t)
	if in, tail, value, ok := entry(t); ok {
		in.add(tx, tail, value)
	}
	if t.State == Dead {
		deadIndex(l).add(tx, atTime(t.Until, t.ID), "")
	}
	return t
}

// leave takes a task out of the state it is in, with what that has in the
// indexes. Whoever calls it enters the task somewhere else, or forgets it.
func (q *Queue) leave(tx Tx, t Task) {
	l := t.line()
	s, due := getStats(tx, l)
	*s.of(t)--
	putStats(tx, l, s, due)
	if in, tail, _, ok := entry(t); ok {
		in.remove(tx, tail)
	}
	if t.State == Dead {
		deadIndex(l).remove(tx, atTime(t.Until, t.ID))
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
		readyIndex(t.line(), t.Priority).passed(tx, bigEndian(t.place+1))
		tasks = append(tasks, q.begin(tx, t, h, ttl))
	}
	return tasks
}

// next finds the ready task that is first over several lines.
func next(tx Tx, lines []line) (first Task, ok bool) {
	priority, places := -1, uint64(0)
	var heads []line // the lines that have a task of that priority
	for _, l := range lines {
		s, _ := getStats(tx, l)
		for p := MaxPriority; p >= max(priority, 0); p-- {
			if s.Ready[p] == 0 {
				continue
			}
			if p > priority {
				priority, heads = p, heads[:0]
			}
			heads = append(heads, l)
			break
		}
	}
	for _, l := range heads {
		in := readyIndex(l, priority)
		for row := range in.entries(tx) {
			if place := row.Key[len(in.prefix):]; len(place) != 8 {
				panic(corrupt(row.Key, errEntry))
			} else if n := fromBigEndian(place); !ok || n < places {
				if first, ok = getTask(tx, in.idAt(row)); !ok {
					panic(corrupt(row.Key, errEntry))
				}
				places = n
			}
			break
		}
	}
	return first, ok
}

// begin starts an execution: the attempt is counted and the lease granted in
// the transaction that takes the task out of the line.
func (q *Queue) begin(tx Tx, t Task, h holder, ttl time.Duration) Claimed {
	lease := q.leases.Grant(tx, t.ID.String(), h, ttl)
	t.State = InProgress // its place is kept, for an undo
	t.Attempt++
	t.Attempts = append(t.Attempts, Attempt{Token: lease.Token, Actor: h.Actor, Path: h.Path, BeganAt: tx.Now()})
	t = q.enter(tx, t, time.Time{})
	return Claimed{Task: t, Token: lease.Token, Deadline: lease.Deadline}
}

// undo takes back a claim that nobody has been told of.
func (q *Queue) undo(tx Tx, t Task) {
	if lease, ok := q.leases.Get(tx, t.ID.String()); ok {
		q.leases.Free(tx, lease, registry.Released)
	}
	q.leave(tx, t)
	t.Attempt--
	t.Attempts = t.Attempts[:len(t.Attempts)-1]
	q.ready(tx, t)
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
	if len(result) > 0 {
		tx.Put(engine.Row{Key: resultKey(id), Value: string(result)})
	}
	return q.finish(tx, t, state, state.String()), nil
}

// keepKey is how long an idempotency key is kept at least, from the enqueue.
const keepKey = 24 * time.Hour

// finish moves a task to a final state.
func (q *Queue) finish(tx Tx, t Task, state State, cause string) Task {
	q.leave(tx, t)
	q.endAttempt(tx, &t, cause)
	t.State, t.DueAt = state, time.Time{}
	t.FinishedAt, t.Until = tx.Now(), tx.Now().Add(q.retention(state))
	if keep := t.EnqueuedAt.Add(keepKey); t.Key != "" && keep.After(t.Until) {
		t.Until = keep
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
	id, err := uuid.Parse(lease.Key)
	if err != nil {
		return // no claim of ours, as Check says
	}
	t, ok := getTask(qtx, id)
	if !ok || t.State != InProgress || t.last().Token != lease.Token {
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

// forget removes every row of a task.
func (q *Queue) forget(tx Tx, t Task) {
	l := t.line()
	q.leave(tx, t)
	if t.Key != "" {
		tx.Delete(idemKey(l, t.Key))
	}
	tx.Delete(taskKey(t.ID))
	tx.Delete(payloadKey(t.ID))
	tx.Delete(resultKey(t.ID))
	if _, ok := tx.Get(statsKey(l)); !ok {
		for _, in := range append(indexesOf(l), deadIndex(l)) {
			tx.Delete(in.cursorKey())
		}
	}
}
