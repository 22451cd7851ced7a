package queue

import (
	"cmp"
	"slices"
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
func (q *Queue) enqueue(tx Tx, n *draft) (Task, error) {
	if n.Key != "" {
		if e, ok := getEnqueued(tx, n.line, n.Key); ok {
			if t, ok := getTask(tx, e.ID); ok && e.Hash == n.hash {
				return t, nil
			} else if ok {
				return Task{}, ErrKeyReused
			}
		}
		enqueued{n.id, n.hash}.put(tx, n.line, n.Key)
	}
	now := tx.Now()
	t := Task{
		ID: n.id, Run: n.Run, Queue: n.Queue, Priority: n.Priority, MaxAttempts: n.MaxAttempts,
		Size: len(n.payload), Key: n.Key, EnqueuedAt: now, EnqueuedBy: n.By, line: n.line, payload: n.payload,
	}
	due := n.RunAt
	if due.IsZero() {
		due = now.Add(n.Delay)
	}
	t = q.place(tx, nil, t, due)
	t.payload = ""
	return t, nil
}

// place makes a task ready, at the end of its line, or delayed until due. It
// stood as was says, see move.
func (q *Queue) place(tx Tx, was *Task, t Task, due time.Time) Task {
	if due.After(tx.Now()) {
		t.State, t.DueAt = Delayed, due
		return q.move(tx, was, t, due)
	}
	t.place = nextPlace(tx)
	return q.ready(tx, was, t)
}

// ready makes a task ready at its place, or hands it to who waits for it. With
// place it is the only way to become ready: so nobody waits where there is
// something.
func (q *Queue) ready(tx Tx, was *Task, t Task) Task {
	t.State, t.DueAt = Ready, time.Time{}
	if t, ok := q.hand(tx, was, t); ok {
		return t
	}
	return q.move(tx, was, t, time.Time{})
}

// move writes a task in the state it has come to, and moves it there in the
// counts and in the indexes from where it stood before, which is nowhere if was
// is nil. The queue is due no later than attention says, if that is not zero.
func (q *Queue) move(tx Tx, was *Task, t Task, attention time.Time) Task {
	s, due := getStats(tx, t.line)
	if was != nil {
		*s.of(was)--
		leave(tx, was)
	}
	*s.of(&t)++
	if due.IsZero() || !attention.IsZero() && attention.Before(due) {
		due = attention
	}
	putStats(tx, t.line, s, due)
	text := t.encode()
	putTask(tx, &t, text[len(t.ID):], was == nil)
	switch in, tail, ok := entry(&t); {
	case t.State == Ready:
		if s.Ready[t.Priority] == 1 { // its first
			in.passed(tx, tail)
		}
		tx.Put(engine.Row{Key: in.prefix + tail, Value: text})
	case ok:
		in.reopen(tx, tail)
		tx.Put(engine.Row{Key: in.prefix + tail})
	}
	if t.State == Dead {
		in, tail := deadIndex(t.line), atTime(t.Until, t.ID)
		in.reopen(tx, tail)
		tx.Put(engine.Row{Key: in.prefix + tail})
	}
	return t
}

// leave removes what a task has in the indexes.
func leave(tx Tx, t *Task) {
	if in, tail, ok := entry(t); ok {
		in.remove(tx, tail)
	}
	if t.State == Dead {
		deadIndex(t.line).remove(tx, atTime(t.Until, t.ID))
	}
}

// claimUp gives up to count ready tasks of the lines to a holder, the highest
// priority first, among equals the oldest, and no more than an answer can carry.
func (q *Queue) claimUp(tx Tx, lines []line, h holder, ttl time.Duration, count int) (tasks []Claimed) {
	var stocks [MaxPriority + 1][]stock // by priority
	for _, l := range lines {
		s, _ := getStats(tx, l)
		for p, n := range s.Ready {
			if n > 0 {
				stocks[p] = append(stocks[p], stock{readyIndex(l, p), n})
			}
		}
	}
	size := 0
	for p := MaxPriority; p >= 0 && len(tasks) < count; p-- {
		if len(stocks[p]) == 0 {
			continue
		}
		ready := firstReady(tx, stocks[p], count-len(tasks))
		for i := range ready {
			if size += ready[i].Size; size > MaxClaimBytes && len(tasks)+i > 0 {
				ready, count = ready[:i], 0 // and no others
				break
			}
		}
		for i, t := range ready { // first, so that their fronts stay true
			if i+1 == len(ready) || ready[i+1].line != t.line {
				readyIndex(t.line, p).passed(tx, bigEndian(t.place+1))
			}
		}
		tasks = slices.Grow(tasks, len(ready))
		for i, t := range ready {
			tasks = append(tasks, q.begin(tx, &ready[i], t, h, ttl))
		}
	}
	return tasks
}

// A stock is a line of one priority in which so many tasks stand.
type stock struct {
	index
	tasks uint64
}

// firstReady finds up to count ready tasks in lines of one priority, the oldest
// over all of them first.
func firstReady(tx Tx, stocks []stock, count int) (tasks []Task) {
	for _, in := range stocks {
		if count == 1 && in.tasks > frontTasks {
			if row, payload, ok := in.first(tx); ok {
				t := in.taskAt(tx, row)
				if payload != "" {
					_, t.payload = payloadOf(engine.Row{Key: payloadKey(t.ID), Value: payload})
				}
				tasks = append(tasks, t)
			}
			continue
		}
		from := len(tasks)
		for row := range in.entries(tx) {
			if tasks = append(tasks, in.taskAt(tx, row)); len(tasks)-from == count {
				break
			}
		}
	}
	if len(stocks) > 1 {
		slices.SortFunc(tasks, func(a, b Task) int { return cmp.Compare(a.place, b.place) })
	}
	return tasks[:min(len(tasks), count)]
}

// begin starts an execution: the attempt is counted and the lease granted in
// the transaction that takes the task out of the line.
func (q *Queue) begin(tx Tx, was *Task, t Task, h holder, ttl time.Duration) Claimed {
	lease := q.leases.Grant(tx, t.ID.String(), h, ttl)
	t.State = InProgress // its place is kept, for an undo
	t.Attempt++
	t.Attempts = append(t.Attempts, Attempt{Token: lease.Token, Actor: h.Actor, Path: h.Path, BeganAt: tx.Now()})
	t = q.move(tx, was, t, time.Time{})
	c := Claimed{Task: t, Token: lease.Token, Deadline: lease.Deadline}
	if t.payload != "" {
		c.Payload, c.Task.payload = []byte(t.payload), ""
	}
	return c
}

// undo takes back a claim that nobody has been told of.
func (q *Queue) undo(tx Tx, t Task) {
	if lease, ok := q.leases.Get(tx, t.ID.String()); ok {
		q.leases.Free(tx, lease, registry.Released)
	}
	was := t
	readyIndex(t.line, t.Priority).reopen(tx, bigEndian(t.place))
	t.Attempt--
	t.Attempts = t.Attempts[:len(t.Attempts)-1]
	q.ready(tx, &was, t)
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
func (q *Queue) submit(tx Tx, h holder, run uuid.UUID, s *Submission) (Task, error) {
	t, lease, err := q.held(tx, h, run, s.ID, s.Token)
	if err != nil {
		if done, ok := getTask(tx, s.ID); ok && done.Run == run && done.State == s.State && done.last().Token == s.Token && done.last().Actor == h.Actor {
			return done, nil
		}
		return Task{}, err
	}
	q.leases.Free(tx, lease, registry.Released)
	if t.result.apart = len(s.Result) > smallResult; t.result.apart {
		tx.Put(engine.Row{Key: resultKey(s.ID), Value: string(s.Result)})
	} else {
		t.result.text = string(s.Result)
	}
	return q.finish(tx, t, s.State, s.State.String()), nil
}

// keepKey is how long an idempotency key is kept at least, from the enqueue.
const keepKey = 24 * time.Hour

// finish moves a task to a final state.
func (q *Queue) finish(tx Tx, t Task, state State, cause string) Task {
	was := t
	q.endAttempt(tx, &t, cause)
	t.State, t.DueAt = state, time.Time{}
	t.FinishedAt, t.Until = tx.Now(), tx.Now().Add(q.retention(state))
	if keep := t.EnqueuedAt.Add(keepKey); t.Key != "" && keep.After(t.Until) {
		t.Until = keep
	}
	return q.move(tx, &was, t, t.Until)
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
	was := t
	q.endAttempt(tx, &t, cause)
	return q.place(tx, &was, t, tx.Now().Add(delay))
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
	was := t
	t.Attempt, t.FinishedAt, t.Until = 0, time.Time{}, time.Time{}
	t.Attempts = nil
	return q.place(tx, &was, t, time.Time{})
}

// forget removes every row of a task.
func (q *Queue) forget(tx Tx, t Task) {
	l := t.line
	s, due := getStats(tx, l)
	*s.of(&t)--
	putStats(tx, l, s, due)
	leave(tx, &t)
	if t.Key != "" {
		tx.Delete(idemKey(l, t.Key))
	}
	tx.Delete(taskKey(t.ID))
	tx.Delete(payloadKey(t.ID))
	if t.result.apart {
		tx.Delete(resultKey(t.ID))
	}
	if s.empty() {
		for _, in := range append(indexesOf(l), deadIndex(l)) {
			in.forget(tx)
		}
	}
}
