package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// A Claim asks for tasks.
type Claim struct {
	Run       uuid.UUID
	Queues    []string // 1 to MaxQueues
	Holder    registry.Holder
	TTL       time.Duration // registry.MinTTL to registry.MaxTTL
	Wait      time.Duration // at most registry.MaxWait; 0: answer at once
	Count     int           // 1 to MaxCount; 0: 1
	RequestID string        // makes the claim idempotent; "": it is not
}

// A Claimed is a task that the holder has claimed. Unless renewed, the claim
// ends after ExpiresIn.
type Claimed struct {
	Task
	Payload []byte
	Token   uint64
}

// ClaimKind is the kind of a claim's answer.
const ClaimKind call.Kind = "claim"

// Claim takes up to Count tasks. If none is ready, it waits for one, and
// returns none when the wait is over. A call that is sent again gets those of
// its tasks that its party still holds. A call whose ctx ends has claimed
// nothing, unless it was cut off and can be sent again.
func (q *Queue) Claim(ctx context.Context, c Claim) ([]Claimed, error) {
	c.Count = cmp.Or(c.Count, 1)
	if err := c.check(); err != nil {
		return nil, err
	}
	w := newWaiter(ctx, c)
	leave, err := q.core.Enter(ctx, ClaimKind, w.call)
	if err != nil {
		return nil, err
	}
	defer leave()
	var watch *engine.Watch
	if c.Wait > 0 {
		// The watch starts before the first look, so no task given to the
		// waiter falls between a look and the wait. A waiter can be given a
		// task only while it is in the room, so it enters before it has a place
		// in any line.
		watch = q.eng.Watch(w.call.Key())
		defer watch.Stop()
		q.room.enter(w)
		defer q.room.leave(w)
	}
	for patience := c.Wait; ; patience = 0 {
		var tasks []Claimed
		err := engine.Await(ctx, watch, patience, func(last bool) error {
			err := q.update(ctx, &c.Holder, func(tx *ledger) (err error) {
				tasks, err = q.claim(tx, w, last)
				return err
			})
			w.joined = w.joined || err == engine.ErrWait
			return err
		})
		if ctx.Err() != nil {
			return nil, q.withdraw(ctx, w)
		}
		if err != nil || len(tasks) == 0 {
			return nil, err
		}
		// Payloads never change, so they are read after the claim's
		// transaction, where they delay nobody. A task whose payload cannot be
		// read is left out.
		tasks, err = q.readPayloads(ctx, w, tasks)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
	}
}

func (c *Claim) check() error {
	if len(c.Queues) < 1 || len(c.Queues) > MaxQueues {
		return argumentError("queues", "must name 1 to %d queues", MaxQueues)
	}
	for _, name := range c.Queues {
		if err := CheckName("queues", name); err != nil {
			return err
		}
	}
	switch {
	case c.Count < 1 || c.Count > MaxCount:
		return argumentError("count", "must be from 1 to %d", MaxCount)
	case len(c.RequestID) > registry.MaxRequestID:
		return argumentError("request_id", "must be at most %d bytes", registry.MaxRequestID)
	}
	return cmp.Or(registry.CheckParty(c.Holder.Party), registry.CheckTTL(c.TTL), registry.CheckWait(c.Wait))
}

// claim is the rule. It repeats the call's earlier answer, or takes what is
// ready. If nothing is ready, it joins the lines ([engine.ErrWait]), unless
// last says that its wait is over.
func (q *Queue) claim(tx *ledger, w *waiter, last bool) ([]Claimed, error) {
	if !q.core.Open(tx, w.Holder.Session) {
		return nil, registry.ErrSessionEnded
	}
	answer, answered, err := w.call.Answered(tx, ClaimKind)
	if err != nil {
		return nil, err
	}
	w.leaveLines(tx)
	if answered {
		tasks, err := q.stillClaimed(tx, w.Holder.Session, answer)
		if err != nil || len(tasks) > 0 || !w.joined {
			return tasks, err
		}
		w.call.Forget(tx) // it was given a task, and lost it before it could look
	}
	tasks := q.take(tx, w)
	switch {
	case len(tasks) > 0:
		w.answer(tx, tasks...)
		return tasks, nil
	case last:
		return nil, nil
	}
	if err := q.room.mayWait(w, &q.opts); err != nil && !w.joined {
		return nil, err
	}
	w.joinLines(tx)
	return nil, engine.ErrWait
}

// take claims up to Count ready tasks of the lines: the highest priority first,
// then the oldest. It stops before the payloads exceed MaxClaimBytes.
func (q *Queue) take(tx *ledger, w *waiter) (tasks []Claimed) {
	var open []*account
	for _, l := range w.lines {
		if a := tx.accountOf(l); a.stats.ReadyTotal() > 0 && !isPaused(tx, l) {
			open = append(open, a)
		}
	}
	size := 0
	for p := MaxPriority; p >= 0 && len(tasks) < w.Count; p-- {
		begun := len(tasks)
		tasks = appendReady(tasks, tx, open, p, w.Count-begun)
		for i := range tasks[begun:] {
			t := &tasks[begun+i]
			if size += t.Size; size > MaxClaimBytes && begun+i > 0 {
				return tasks[:begun+i]
			}
			tx.accountOf(t.line).first[p] = t.place + 1
			removeFromIndex(tx, &t.Task)
			*t = q.begin(tx, &t.Task, w.Holder, w.TTL)
		}
	}
	return tasks
}

// begin starts an execution of a task that is in no index. The attempt is
// counted and the lease granted in the transaction that removes the task from
// its line.
func (q *Queue) begin(tx *ledger, t *Task, h registry.Holder, ttl time.Duration) Claimed {
	lease := q.leases.Grant(tx, t.ID.String(), h, ttl)
	t.State, t.due, t.byWall = InProgress, time.Time{}, false // the place is kept in case the claim is undone
	t.Attempt++
	t.Attempts = append(t.Attempts, Attempt{Token: lease.Token, Actor: h.Actor, Path: h.Path, Party: h.Party, BeganAt: tx.Wall()})
	t.note(tx, event.Event{Kind: event.TaskClaimed})
	addToIndex(tx, t)
	t.ExpiresIn = lease.Deadline.Sub(tx.Now())
	return Claimed{Task: *t, Token: lease.Token}
}

// appendReady appends up to count ready tasks of one priority, the oldest of
// all queues first.
func appendReady(tasks []Claimed, tx *ledger, queues []*account, priority, count int) []Claimed {
	begun, found := len(tasks), 0
	for _, a := range queues {
		if a.stats.Ready[priority] > 0 {
			tasks = readyIndex(a.line, priority).appendFirst(tasks, tx, count)
			found++
		}
	}
	if found > 1 {
		slices.SortFunc(tasks[begun:], func(a, b Claimed) int { return cmp.Compare(a.place, b.place) })
	}
	return tasks[:min(len(tasks), begun+count)]
}

// appendFirst appends up to count of the first tasks of a ready line. Entries
// that cannot be read are removed from the line.
func (in index) appendFirst(tasks []Claimed, tx *ledger, count int) []Claimed {
	stock := tx.accountOf(in.line).stats.Ready[in.priority]
	for begun := len(tasks); len(tasks) == begun; {
		var f front
		if count == 1 && stock > frontTasks {
			f = in.front(tx)
		} else {
			f = in.first(tx, int(min(stock, uint64(count))))
		}
		if len(f) == 0 {
			tx.accountOf(in.line).none(Ready, in.priority)
			break
		}
		tasks = slices.Grow(tasks, min(len(f), count))
		for i := range f {
			var t Task
			if !in.taskAt(tx, f[i].Row, &t) {
				tx.q.lose(tx, in, f[i].Row)
				continue
			}
			t.payload = f[i].payload
			if tasks = append(tasks, Claimed{Task: t}); len(tasks) == begun+count {
				break
			}
		}
	}
	return tasks
}

// stillClaimed returns the tasks of a claim's answer that the party that claimed
// them, which is of this session, still holds.
func (q *Queue) stillClaimed(tx *ledger, session uuid.UUID, answer string) (tasks []Claimed, err error) {
	for r := record.Read(answer); !r.Done(); {
		id, token := r.ID(), r.Uint()
		lease, ok := q.leases.Get(tx, id.String())
		if !ok || lease.Token != token || lease.Holder.Session != session {
			if token == 0 {
				return tasks, corrupt(string(ClaimKind))
			}
			continue
		}
		t, err := getTask(tx, id)
		if err != nil {
			return nil, err
		}
		if lease.Holder.Party != t.last().Party {
			continue // another sub-agent has extended the claim, and continues the task
		}
		t.ExpiresIn = max(0, lease.Deadline.Sub(tx.Now()))
		tasks = append(tasks, Claimed{Task: t, Token: token})
	}
	return tasks, nil
}

// withdraw ends the claim of a client that is gone. The claim leaves its lines.
// What it claimed is undone, unless it was cut off and can be sent again.
func (q *Queue) withdraw(ctx context.Context, w *waiter) error {
	cause := context.Cause(ctx)
	err := q.update(context.WithoutCancel(ctx), &w.Holder, func(tx *ledger) error {
		w.leaveLines(tx)
		if w.named && errors.Is(cause, call.ErrCutOff) || !w.call.First() {
			return nil
		}
		if a, ok := w.call.Take(tx, ClaimKind); ok {
			q.Undo(tx, w.Holder.Session, a)
		}
		return nil
	})
	return cmp.Or(err, cause)
}

// readPayloads sets the payload of each task. A task whose payload cannot be
// read becomes dead and is left out. If none is left, the call's answer is
// forgotten, so that the call can be made again.
func (q *Queue) readPayloads(ctx context.Context, w *waiter, tasks []Claimed) (readable []Claimed, err error) {
	readable = tasks[:0]
	var unreadable []Claimed
	for _, t := range tasks {
		value := t.payload
		if t.payload = ""; value == "" {
			row, _, err := q.eng.Get(engine.Peek(context.WithoutCancel(ctx)), payloadKey(t.ID))
			if err != nil && !errors.Is(err, engine.ErrCorrupt) {
				return nil, err
			}
			value = row.Value
		}
		payload, _, ok := splitPayload(value)
		if t.Payload = []byte(payload); ok {
			readable = append(readable, t)
		} else {
			unreadable = append(unreadable, t)
		}
	}
	if len(unreadable) == 0 {
		return readable, nil
	}
	return readable, q.update(context.WithoutCancel(ctx), nil, func(tx *ledger) error {
		if len(readable) == 0 {
			w.call.Forget(tx)
		}
		for _, t := range unreadable {
			lease, ok := q.leases.Get(tx, t.ID.String())
			if !ok || lease.Token != t.Token {
				continue
			}
			q.leases.Free(tx, lease, registry.Released)
			q.finish(tx, &t.Task, Dead, fmt.Sprintf("its payload cannot be read (%q)", payloadKey(t.ID)))
		}
		return nil
	})
}
