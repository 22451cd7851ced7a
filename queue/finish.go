package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// Kinds of answers.
const (
	givingBack call.Kind = "give back"   // of a Nack or Abandon: the state of the task
	redriving  call.Kind = "redrive"     // the ids of the tasks
	cancelling call.Kind = "cancel task" // the state of the task
)

// Causes by which an attempt ends, beside those of package registry.
const (
	causeNack    = "nack"
	causeAbandon = "abandoned"
	causeCancel  = "task cancelled"
)

// Heartbeat extends a claim to ttl from now, if that is later. A zero ttl means
// the claim's present ttl. Another party of the same actor that knows the token may
// send it, and then continues the task: the claim no longer ends with the party that
// had it. Heartbeat writes nothing to disk, and returns the time that is left.
func (q *Queue) Heartbeat(ctx context.Context, h registry.Holder, run, id uuid.UUID, token uint64, ttl time.Duration) (left time.Duration, err error) {
	if ttl != 0 {
		if err := registry.CheckTTL(ttl); err != nil {
			return 0, err
		}
	}
	err = q.update(ctx, &h, func(tx *ledger) error {
		_, lease, err := q.claimed(tx, h, run, id, token)
		if err != nil {
			return err
		}
		if !q.core.Open(tx, h.Session) {
			return registry.ErrSessionEnded
		}
		lease = q.leases.Extend(tx, lease, cmp.Or(ttl, lease.TTL), h)
		left = lease.Deadline.Sub(tx.Now())
		return nil
	})
	return left, err
}

// claimed finds a task and the claim on it with a token, and checks that the
// claim is the actor's. A refusal contains the task in its present state, which
// is also returned.
func (q *Queue) claimed(tx *ledger, h registry.Holder, run, id uuid.UUID, token uint64) (Task, registry.Lease, error) {
	t, err := getTaskOf(tx, run, id)
	if err != nil {
		return Task{}, registry.Lease{}, err
	}
	lease, ok := q.leases.Get(tx, id.String())
	if !ok || lease.Token != token || lease.Holder.Actor != h.Actor {
		return t, registry.Lease{}, &StaleError{Task: t, Token: token}
	}
	return t, lease, nil
}

// A Submission is the end of one execution.
type Submission struct {
	ID     uuid.UUID
	Token  uint64
	State  State           // Completed or Failed
	Result json.RawMessage // or the error; at most MaxResult bytes; nil: none
	Fence  registry.Fence  // besides the claim
}

// A Submitted is the result of one Submission: the task as it is now, or the
// error that Submit would return.
type Submitted struct {
	Task Task
	Err  error
}

// Submit finishes a task: Completed with its result, or Failed with its error.
// Repeating the same submission gets the same answer; a different one gets a
// StaleError.
func (q *Queue) Submit(ctx context.Context, h registry.Holder, run uuid.UUID, s Submission) (Task, error) {
	answers, err := q.submitAll(ctx, h, run, []Submission{s})
	if err != nil {
		return Task{}, err
	}
	return answers[0].Task, answers[0].Err
}

// SubmitMany is Submit for 1 to MaxBatch tasks in one transaction. Each has its
// own answer, in the order given; a refused one does not stop the others. If
// SubmitMany returns an error, either none was submitted or the outcome is
// unknown.
func (q *Queue) SubmitMany(ctx context.Context, h registry.Holder, run uuid.UUID, list []Submission) ([]Submitted, error) {
	if err := checkBatch("submissions", "results", list, func(s *Submission) int { return len(s.Result) }); err != nil {
		return nil, err
	}
	return q.submitAll(ctx, h, run, list)
}

func (q *Queue) submitAll(ctx context.Context, h registry.Holder, run uuid.UUID, list []Submission) ([]Submitted, error) {
	refusals := make([]error, len(list))
	for i := range list { // before anything is locked, because results may be large
		refusals[i] = list[i].check()
	}
	answers := make([]Submitted, len(list))
	err := q.update(ctx, nil, func(tx *ledger) error {
		for i, refusal := range refusals {
			a := &answers[i]
			if a.Err = refusal; refusal == nil {
				a.Task, a.Err = q.submit(tx, h, run, &list[i])
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range answers {
		a := &answers[i]
		a.Task, a.Err = list[i].again(a.Task, a.Err)
	}
	return answers, nil
}

// again answers a repeated submission whose result is the same JSON in other
// words. Results are large and take long to compare, and that of a finished task
// never changes, so again runs after the transaction that refused s.
func (s *Submission) again(t Task, err error) (Task, error) {
	if stale, ok := errors.AsType[*StaleError](err); ok && stale.Differs && stale.Task.State == s.State && sameJSON(stale.result, string(s.Result)) {
		return stale.Task, nil
	}
	return t, err
}

func (s *Submission) check() error {
	switch {
	case s.State != Completed && s.State != Failed:
		return argumentError("status", "must be completed or failed")
	case len(s.Result) > MaxResult:
		return &registry.LimitError{Which: "bytes of a result", Max: MaxResult, TooLarge: true}
	case len(s.Result) > 0 && !json.Valid(s.Result):
		return argumentError("result", "must be valid JSON")
	}
	return nil
}

// submit is the rule: it finishes a task under its claim, in one transaction.
func (q *Queue) submit(tx *ledger, h registry.Holder, run uuid.UUID, s *Submission) (Task, error) {
	t, lease, err := q.claimed(tx, h, run, s.ID, s.Token)
	if stale, ok := errors.AsType[*StaleError](err); ok && t.submitted() && t.last().Token == s.Token && t.last().Actor == h.Actor {
		result, err := t.submittedResult(tx)
		if err != nil || t.State == s.State && result == string(s.Result) {
			return t, err
		}
		stale.Differs, stale.result = true, result
		return Task{}, stale
	}
	if err != nil {
		return Task{}, err
	}
	if err := s.Fence.Check(tx); err != nil {
		return Task{}, err
	}
	q.leases.Free(tx, lease, registry.Released)
	if t.result.apart = len(s.Result) > smallResult; t.result.apart {
		tx.Put(engine.Row{Key: resultKey(s.ID), Value: string(s.Result)})
	} else {
		t.result.text = string(s.Result)
	}
	q.finish(tx, &t, s.State, s.State.String())
	return t, nil
}

// submittedResult returns the result of a finished task as it was submitted.
func (t *Task) submittedResult(tx *ledger) (string, error) {
	if !t.result.apart {
		return t.result.text, nil
	}
	row, ok, err := tx.Try(resultKey(t.ID)) // after a Get that fails, the transaction commits nothing
	if err != nil || !ok {
		return "", corruptTask(t.ID, resultKey(t.ID))
	}
	return row.Value, nil
}

// Nack returns a task for another attempt after delay. If delay is nil, the
// delay is random and its bound grows with each attempt. A call that is sent
// again gets the same answer.
func (q *Queue) Nack(ctx context.Context, h registry.Holder, run, id uuid.UUID, token uint64, delay *time.Duration, reason string) (t Task, err error) {
	switch {
	case delay != nil && (*delay < 0 || *delay > MaxDelay):
		return Task{}, argumentError("delay_secs", "must be from 0 to %d", MaxDelay/time.Second)
	case len(reason) > MaxReason:
		return Task{}, argumentError("reason", "must be at most %d bytes", MaxReason)
	}
	cause := causeNack
	if reason != "" {
		cause += ": " + reason
	}
	return q.workerGivesBack(ctx, h, run, id, token, cause, func(t Task) time.Duration {
		if delay != nil {
			return *delay
		}
		return q.backoff(t.Attempt)
	})
}

// Abandon returns a task for another attempt without delay. A call that is sent
// again gets the same answer.
func (q *Queue) Abandon(ctx context.Context, h registry.Holder, run, id uuid.UUID, token uint64) (Task, error) {
	return q.workerGivesBack(ctx, h, run, id, token, causeAbandon, func(Task) time.Duration { return 0 })
}

func (q *Queue) workerGivesBack(ctx context.Context, h registry.Holder, run, id uuid.UUID, token uint64, cause string, delay func(Task) time.Duration) (t Task, err error) {
	c := call.Of(ctx)
	return t, q.update(ctx, nil, func(tx *ledger) error {
		answer, answered, err := c.Answered(tx, givingBack)
		if err != nil {
			return err
		}
		if answered {
			if t, err = getTaskOf(tx, run, id); err == nil && len(answer) == 1 {
				t.State = State(answer[0]) // as it was then
			}
			return err
		}
		found, lease, err := q.claimed(tx, h, run, id, token)
		if err != nil {
			return err
		}
		t = found
		q.leases.Free(tx, lease, registry.Released)
		q.giveBack(tx, &t, cause, delay(t))
		t.shownBy(tx)
		c.Record(tx, givingBack, string([]byte{byte(t.State)}), 0)
		return nil
	})
}

// Cancel finishes a task without a result; a finished task stays as it is. The
// actor that works on it is told, and by whom it was cancelled: by is the path
// of an actor. may returns an error if the caller must not cancel the task; nil
// allows it. A call that is sent again gets the same answer: a dead task may have
// been redriven since.
func (q *Queue) Cancel(ctx context.Context, run, id uuid.UUID, by string, may func(Task) error) (t Task, err error) {
	c := call.Of(ctx)
	return t, q.update(ctx, nil, func(tx *ledger) error {
		answer, answered, err := c.Answered(tx, cancelling)
		if err != nil {
			return err
		}
		if t, err = getTaskOf(tx, run, id); err != nil {
			return err
		}
		if answered {
			t.State = State(answer[0])
			return nil
		}
		if may != nil {
			if err := may(t); err != nil {
				return err
			}
		}
		if !t.State.Finished() {
			cause := causeCancel
			if by != "" {
				cause += " by " + by
			}
			q.finish(tx, &t, Cancelled, cause)
			if lease, ok := q.leases.Get(tx, id.String()); ok {
				q.leases.Free(tx, lease, registry.Cause(cause)) // freed finds the task finished
			}
		}
		c.Record(tx, cancelling, string([]byte{byte(t.State)}), 0)
		return nil
	})
}

// Redrive makes dead tasks of a queue ready again with all their attempts:
// those in ids or, if ids is empty, the first MaxRedrive. It returns the tasks
// that it changed. may refuses tasks; nil refuses none. If a task in ids is
// refused, that is an error; without ids, it is an error only if no task could
// be redriven. A call that is sent again gets the same answer.
func (q *Queue) Redrive(ctx context.Context, run uuid.UUID, queue string, ids []uuid.UUID, may func(Task) error) (done []uuid.UUID, err error) {
	if err := CheckName("queue", queue); err != nil {
		return nil, err
	}
	if len(ids) > MaxRedrive {
		return nil, argumentError("task_ids", "must be at most %d", MaxRedrive)
	}
	c := call.Of(ctx)
	err = q.update(ctx, nil, func(tx *ledger) error {
		done = nil
		answer, answered, err := c.Answered(tx, redriving)
		if err != nil {
			return err
		}
		if answered {
			for len(answer) >= 16 {
				done = append(done, uuid.UUID([]byte(answer[:16])))
				answer = answer[16:]
			}
			return nil
		}
		if _, err := accountAt(tx, run, queue); err != nil {
			return err
		}
		var refusal error
		named := ids
		if len(named) == 0 {
			named = firstDead(tx, lineOf(run, queue))
		}
		for _, id := range named {
			t, err := getTaskOf(tx, run, id)
			if err != nil || t.Queue != queue || t.State != Dead {
				continue // it is left out of the result
			}
			if may != nil {
				if err := may(t); err != nil {
					refusal = err
					continue
				}
			}
			removeFromIndex(tx, &t)
			t.note(tx, event.Event{Kind: event.TaskRedriven})
			t.Attempt, t.Attempts = 0, nil
			t.FinishedAt, t.Until = time.Time{}, time.Time{}
			q.schedule(tx, &t, 0)
			done = append(done, id)
		}
		if refusal != nil && (len(ids) > 0 || len(done) == 0) {
			return refusal
		}
		var list []byte
		for _, id := range done {
			list = append(list, id[:]...)
		}
		c.Record(tx, redriving, string(list), 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done, nil
}

func firstDead(tx *ledger, l line) (ids []uuid.UUID) {
	for row := range indexByTime(l, Dead, true).entries(tx) {
		if id, ok := idOf(row, false); ok {
			ids = append(ids, id)
		}
		if len(ids) == MaxRedrive {
			break
		}
	}
	return ids
}

// freed is called by the lease rules when a claim ends, in their transaction.
// It returns the task to its queue, unless the code that ended the claim has
// already moved it.
func (q *Queue) freed(tx engine.Tx, lease registry.Lease, cause registry.Cause) {
	id, err := uuid.Parse(lease.Key)
	if err != nil || cause == registry.Released {
		return
	}
	q.entered(tx, func(tx *ledger) {
		t, err := getTask(tx, id)
		if errors.Is(err, engine.ErrCorrupt) {
			q.loseClaimed(tx, id)
			return
		}
		if err != nil || t.State != InProgress || t.last().Token != lease.Token {
			return
		}
		var delay time.Duration
		if cause == registry.Expired {
			delay = q.backoff(t.Attempt)
		}
		q.giveBack(tx, &t, string(cause), delay)
	})
}

// Undo reverses a call whose client was not told of the result. Claimed tasks
// return to their places, and their attempts are not counted. Tasks that were
// enqueued are removed, unless somebody has claimed one of them. Undo then
// returns false and changes nothing, and the caller must keep the answer,
// because the call may be sent again. What finished a task is not undone.
func (q *Queue) Undo(tx engine.Tx, session uuid.UUID, a call.Answer) (undone bool) {
	undone = true
	q.entered(tx, func(tx *ledger) {
		switch a.Kind {
		case ClaimKind:
			q.undoClaim(tx, session, a.Value)
		case EnqueueKind:
			undone = q.undoEnqueue(tx, a.Value)
		}
	})
	return undone
}

func (q *Queue) undoClaim(tx *ledger, session uuid.UUID, answer string) {
	tasks, err := q.stillClaimed(tx, session, answer)
	if err != nil {
		return // a task is unreadable; its claim will expire
	}
	for i := range tasks {
		t := &tasks[i].Task
		if lease, ok := q.leases.Get(tx, t.ID.String()); ok {
			q.leases.Free(tx, lease, registry.Released)
		}
		removeFromIndex(tx, t)
		t.note(tx, event.Event{Kind: event.TaskReturned, Cause: "claim undone"})
		t.Attempt--
		t.Attempts = t.Attempts[:len(t.Attempts)-1]
		readyIndex(t.line, t.Priority).forget(tx) // the front may lack the task, or have it as it was
		q.makeReady(tx, t)
	}
}

func (q *Queue) undoEnqueue(tx *ledger, answer string) (undone bool) {
	var fresh []Task
	for r := record.Read(answer); !r.Done(); {
		var own bool
		id := r.ID()
		if r.Flags(&own); id == uuid.Nil {
			break
		}
		if !own {
			continue
		}
		t, err := getTask(tx, id)
		if err != nil || t.Attempt > 0 || t.State != Ready && t.State != Delayed {
			return false
		}
		fresh = append(fresh, t)
	}
	for i := range fresh {
		fresh[i].note(tx, event.Event{Kind: event.TaskCancelled, Cause: "enqueue undone"})
		forget(tx, &fresh[i])
	}
	return true
}
