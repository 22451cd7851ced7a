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
func (q *Queue) enqueue(tx *ledger, n *draft) (Task, error) {
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
		Size: n.size, Key: n.Key, EnqueuedAt: now, EnqueuedBy: n.By, line: n.line, draft: n,
	}
	due := n.RunAt
	if due.IsZero() {
		due = now.Add(n.Delay)
	}
	q.place(tx, &t, due)
	return t, nil
}

// A task moves in two steps: it leaves where it stands, changes, and stands
// where its state says.

// place makes a task that stands nowhere ready, at the end of its line, or
// delayed until due.
func (q *Queue) place(tx *ledger, t *Task, due time.Time) {
	if due.After(tx.Now()) {
		t.State, t.DueAt = Delayed, due
		stand(tx, t)
		return
	}
	t.place = tx.nextPlace()
	q.ready(tx, t)
}

// ready makes a task ready at its place, or hands it to who waits for it. With
// place it is the only way to become ready: so nobody waits where there is
// something.
func (q *Queue) ready(tx *ledger, t *Task) {
	t.State, t.DueAt = Ready, time.Time{}
	if !q.hand(tx, t) {
		stand(tx, t)
	}
}

// stand writes a task in the state it has come to: its record, its entry in the
// index, and that it counts.
func stand(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	n := a.stats.of(t)
	*n++
	a.moved = true
	text := putTask(tx, t)
	switch {
	case t.State == Ready:
		if *n == 1 || t.place < a.first[t.Priority] {
			a.first[t.Priority] = t.place
		}
		tx.Put(engine.Row{Key: t.entryKey(), Value: string(t.ID[:]) + text})
	case t.State == Delayed:
		a.wanted(t.DueAt)
		tx.Put(engine.Row{Key: t.entryKey()})
	case t.State.Finished():
		a.wanted(t.Until)
		tx.Put(engine.Row{Key: t.entryKey()})
	}
	if t.State == Dead {
		deadIndex(t.line).reopen(tx, atTime(t.Until, t.ID))
		tx.Put(engine.Row{Key: t.deadKey()})
	}
}

// leave takes a task out of the counts and the indexes. Who claims it has passed
// it.
func leave(tx *ledger, t *Task) {
	a := tx.accountOf(t.line)
	n := a.stats.of(t)
	*n--
	a.moved = true
	if t.State != InProgress {
		tx.Delete(t.entryKey())
	}
	switch {
	case t.State == Dead:
		tx.Delete(t.deadKey())
	case t.State == Ready && (*n == 0 || t.place >= a.first[t.Priority]):
		readyIndex(t.line, t.Priority).forget(tx)
	}
}

// claimUp gives up to count ready tasks of the lines to a holder, the highest
// priority first, among equals the oldest, and no more than an answer can carry.
func (q *Queue) claimUp(tx *ledger, c *claimCall) (tasks []Claimed) {
	size := 0
	for p := MaxPriority; p >= 0 && len(tasks) < c.Count; p-- {
		begun := len(tasks)
		tasks = appendReady(tasks, tx, c.lines, p, c.Count-begun)
		for i := range tasks[begun:] {
			t := &tasks[begun+i]
			if size += t.Size; size > MaxClaimBytes && begun+i > 0 {
				return tasks[:begun+i]
			}
			tx.accountOf(t.line).first[p] = t.place + 1
			leave(tx, &t.Task)
			q.begin(tx, t, c.Holder, c.TTL)
		}
	}
	return tasks
}

// appendReady finds up to count ready tasks of one priority in some lines, the
// oldest over all of them first.
func appendReady(tasks []Claimed, tx *ledger, lines []line, priority, count int) []Claimed {
	begun, found := len(tasks), 0
	for _, l := range lines {
		stock := tx.accountOf(l).stats.Ready[priority]
		if stock == 0 {
			continue
		}
		in := readyIndex(l, priority)
		if count == 1 && stock > frontTasks {
			tasks = append(tasks, Claimed{})
			if !in.next(tx, &tasks[len(tasks)-1].Task) {
				tasks = tasks[:len(tasks)-1]
			}
		} else {
			tasks = in.appendFirst(slices.Grow(tasks, int(min(stock, uint64(count)))), tx, count)
		}
		found++
	}
	if found > 1 {
		slices.SortFunc(tasks[begun:], func(a, b Claimed) int { return cmp.Compare(a.place, b.place) })
	}
	return tasks[:min(len(tasks), begun+count)]
}

// appendFirst reads up to count tasks of a ready line.
func (in index) appendFirst(tasks []Claimed, tx *ledger, count int) []Claimed {
	for row := range in.entries(tx) {
		tasks = append(tasks, Claimed{})
		in.readyAt(in.tail(row), row.Value, &tasks[len(tasks)-1].Task)
		if count--; count == 0 {
			break
		}
	}
	return tasks
}

// begin starts an execution of a task that stands nowhere: the attempt is counted
// and the lease granted in the transaction that takes the task out of the line.
func (q *Queue) begin(tx *ledger, c *Claimed, h holder, ttl time.Duration) {
	lease := q.leases.Grant(tx, c.ID.String(), h, ttl)
	c.Token, c.Deadline = lease.Token, lease.Deadline
	c.State = InProgress // its place is kept, for an undo
	c.Attempt++
	c.Attempts = append(c.Attempts, Attempt{Token: lease.Token, Actor: h.Actor, Path: h.Path, BeganAt: tx.Now()})
	stand(tx, &c.Task)
}

// undo takes back a claim that nobody has been told of.
func (q *Queue) undo(tx *ledger, t *Task) {
	if lease, ok := q.leases.Get(tx, t.ID.String()); ok {
		q.leases.Free(tx, lease, registry.Released)
	}
	leave(tx, t)
	t.Attempt--
	t.Attempts = t.Attempts[:len(t.Attempts)-1]
	readyIndex(t.line, t.Priority).forget(tx) // where it stood a front has passed
	q.ready(tx, t)
}

// held finds the claim that (id, token) names and checks that it is the
// actor's. What the caller may know of a failure is in the error. It reads the
// task into t, which is that of a claim if there is no error.
func (q *Queue) held(tx *ledger, h holder, run, id uuid.UUID, token uint64, t *Task) (registry.Lease, error) {
	if !t.read(tx, id) || t.Run != run {
		return registry.Lease{}, notFound(id)
	}
	lease, ok := q.leases.Get(tx, id.String())
	if !ok || lease.Token != token || lease.Holder.Actor != h.Actor {
		return registry.Lease{}, &StaleError{Task: *t, Token: token}
	}
	return lease, nil
}

// submit finishes a task under its claim, in one transaction, and leaves it in t.
// The same submit again gets the same answer.
func (q *Queue) submit(tx *ledger, h holder, run uuid.UUID, s *Submission, t *Task) error {
	lease, err := q.held(tx, h, run, s.ID, s.Token, t)
	if err != nil {
		if t.Run == run && t.State == s.State && t.last().Token == s.Token && t.last().Actor == h.Actor {
			return nil
		}
		*t = Task{}
		return err
	}
	q.leases.Free(tx, lease, registry.Released)
	if t.result.apart = len(s.Result) > smallResult; t.result.apart {
		tx.Put(engine.Row{Key: resultKey(s.ID), Value: string(s.Result)})
	} else {
		t.result.text = string(s.Result)
	}
	q.finish(tx, t, s.State, s.State.String())
	return nil
}

// keepKey is how long an idempotency key is kept at least, from the enqueue.
const keepKey = 24 * time.Hour

// finish moves a task to a final state.
func (q *Queue) finish(tx *ledger, t *Task, state State, cause string) {
	leave(tx, t)
	endAttempt(tx, t, cause)
	t.State, t.DueAt = state, time.Time{}
	t.FinishedAt, t.Until = tx.Now(), tx.Now().Add(q.retention(state))
	if keep := t.EnqueuedAt.Add(keepKey); t.Key != "" && keep.After(t.Until) {
		t.Until = keep
	}
	stand(tx, t)
}

func endAttempt(tx *ledger, t *Task, cause string) {
	if t.State == InProgress {
		t.last().EndedAt, t.last().Cause = tx.Now(), cause
	}
}

// giveBack ends an execution without a result: the task is retried after
// delay, or is dead if it may not begin again.
func (q *Queue) giveBack(tx *ledger, t *Task, cause string, delay time.Duration) {
	if t.Attempt >= t.MaxAttempts {
		q.finish(tx, t, Dead, cause)
		return
	}
	leave(tx, t)
	endAttempt(tx, t, cause)
	q.place(tx, t, tx.Now().Add(delay))
}

// freed is called by the lease rules, in their transaction, when a claim ends
// otherwise than by its own hand: by its ttl, its session's end or an
// operator.
func (q *Queue) freed(tx registry.Tx, lease registry.Lease, cause registry.Cause) {
	if cause == registry.Released {
		return
	}
	id, err := uuid.Parse(lease.Key)
	if err != nil {
		return // no claim of ours, as Check says
	}
	entered(tx.(Tx), func(tx *ledger) {
		t, ok := claimedTask(tx, id)
		if !ok || t.State != InProgress || t.last().Token != lease.Token {
			return
		}
		var delay time.Duration
		if cause == registry.Expired {
			delay = q.backoff(t.Attempt)
		}
		q.giveBack(tx, &t, string(cause), delay)
	})
}

// cancel finishes a task that is not finished; a claim on it ends.
func (q *Queue) cancel(tx *ledger, run, id uuid.UUID) (Task, error) {
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
	q.finish(tx, &t, Cancelled, causeCancel)
	return t, nil
}

// redrive gives a dead task all its attempts again.
func (q *Queue) redrive(tx *ledger, t *Task) {
	leave(tx, t)
	t.Attempt, t.FinishedAt, t.Until = 0, time.Time{}, time.Time{}
	t.Attempts = nil
	q.place(tx, t, time.Time{})
}

// forget removes every row of a task.
func (q *Queue) forget(tx *ledger, t *Task) {
	leave(tx, t)
	if t.Key != "" {
		tx.Delete(idemKey(t.line, t.Key))
	}
	tx.Delete(taskKey(t.ID))
	tx.Delete(payloadKey(t.ID))
	if t.result.apart {
		tx.Delete(resultKey(t.ID))
	}
	if tx.accountOf(t.line).stats.empty() {
		for _, in := range append(indexesOf(t.line), deadIndex(t.line)) {
			in.forget(tx)
		}
	}
}
