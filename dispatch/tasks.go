package dispatch

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/queue"
)

// Tasks gives access to the queues of the session's run on behalf of its actor.
type Tasks struct {
	se *Session
	q  *queue.Queue
}

// Tasks returns the queues of the session's run.
func (se *Session) Tasks() (Tasks, error) {
	if se.actor.Role.Outside() {
		return Tasks{}, forbidden("an operator is in no run; leasehold queue shows the queues of every run")
	}
	return Tasks{se, se.state.queue}, nil
}

// Enqueue adds a task. It fills in Run, Actor and By of n.
func (t Tasks) Enqueue(ctx context.Context, n queue.NewTask) (queue.Task, error) {
	n.Run, n.Actor, n.By = t.se.run.ID, t.se.actor.ID, t.se.actor.Path
	list := []queue.NewTask{n}
	done := t.se.state.opts.Traces.Enqueuing(ctx, list)
	made, err := t.q.Enqueue(ctx, list[0])
	done([]queue.Task{made}, err)
	return made, err
}

// EnqueueMany adds several tasks, or none.
func (t Tasks) EnqueueMany(ctx context.Context, list []queue.NewTask) ([]queue.Task, error) {
	for i := range list {
		list[i].Run, list[i].Actor, list[i].By = t.se.run.ID, t.se.actor.ID, t.se.actor.Path
	}
	done := t.se.state.opts.Traces.Enqueuing(ctx, list)
	made, err := t.q.EnqueueMany(ctx, list)
	done(made, err)
	return made, err
}

// Claim claims tasks. It fills in Run of c, and reads only Party of its Holder.
func (t Tasks) Claim(ctx context.Context, c queue.Claim) ([]queue.Claimed, error) {
	ctx, stop := t.se.WithinWait(ctx, c.Holder.Party, c.Wait)
	defer stop()
	c.Run, c.Holder = t.se.run.ID, t.se.As(c.Holder.Party)
	claimed, err := t.q.Claim(ctx, c)
	t.se.state.opts.Traces.Claimed(ctx, claimed)
	return claimed, err
}

// Heartbeat extends a claim on behalf of party, and returns the remaining time.
func (t Tasks) Heartbeat(ctx context.Context, party string, id uuid.UUID, token uint64, ttl time.Duration) (time.Duration, error) {
	return t.q.Heartbeat(ctx, t.se.As(party), t.se.run.ID, id, token, ttl)
}

// Submit finishes a task.
func (t Tasks) Submit(ctx context.Context, s queue.Submission) (queue.Task, error) {
	done := t.se.state.opts.Traces.Ending(ctx, "submit")
	task, err := t.q.Submit(ctx, t.se.Holder(), t.se.run.ID, s)
	done("", &task, err)
	return task, err
}

// SubmitMany finishes several tasks, each with its own result. from[i] is the
// traceparent of the caller that submits list[i], or "".
func (t Tasks) SubmitMany(ctx context.Context, list []queue.Submission, from []string) ([]queue.Submitted, error) {
	done := t.se.state.opts.Traces.Ending(ctx, "submit")
	answers, err := t.q.SubmitMany(ctx, t.se.Holder(), t.se.run.ID, list)
	for i := range answers {
		done(from[i], &answers[i].Task, answers[i].Err)
	}
	return answers, err
}

// Nack returns a task to its queue for another attempt after delay. A nil delay
// means the backoff.
func (t Tasks) Nack(ctx context.Context, id uuid.UUID, token uint64, delay *time.Duration, reason string) (queue.Task, error) {
	done := t.se.state.opts.Traces.Ending(ctx, "nack")
	task, err := t.q.Nack(ctx, t.se.Holder(), t.se.run.ID, id, token, delay, reason)
	done("", &task, err)
	return task, err
}

// Abandon returns a task to its queue for another attempt at once.
func (t Tasks) Abandon(ctx context.Context, id uuid.UUID, token uint64) (queue.Task, error) {
	done := t.se.state.opts.Traces.Ending(ctx, "abandon")
	task, err := t.q.Abandon(ctx, t.se.Holder(), t.se.run.ID, id, token)
	done("", &task, err)
	return task, err
}

// Get returns a task.
func (t Tasks) Get(ctx context.Context, id uuid.UUID) (queue.Detail, error) {
	return t.q.Get(ctx, t.se.run.ID, id)
}

// Wait returns the task once it is finished, or when wait is over. party is the
// agent of the session that waits.
func (t Tasks) Wait(ctx context.Context, party string, id uuid.UUID, wait time.Duration) (queue.Detail, error) {
	ctx, stop := t.se.WithinWait(ctx, party, wait)
	defer stop()
	return t.q.Wait(ctx, t.se.run.ID, id, wait)
}

// Cancel ends a task without a result.
func (t Tasks) Cancel(ctx context.Context, id uuid.UUID) (queue.Task, error) {
	return t.q.Cancel(ctx, t.se.run.ID, id, t.se.actor.Path, t.mayEnd)
}

// mayEnd returns an error unless the actor enqueued the task, is its last
// claimant, or is a lead.
func (t Tasks) mayEnd(task queue.Task) error {
	a := t.se.actor
	if a.Role != Worker || task.EnqueuedBy == a.Path {
		return nil
	}
	if n := len(task.Attempts); n > 0 && task.Attempts[n-1].Actor == a.ID {
		return nil
	}
	return forbidden("only %s, who enqueued task %s, its claimant and the leads of the run may cancel or redrive it; ask one of them", task.EnqueuedBy, task.ID)
}

// Stats counts the tasks of the queue with that name. If name is "", it counts
// those of the run's queues whose names come after after, up to limit queues;
// more reports whether there are further ones.
func (t Tasks) Stats(ctx context.Context, name, after string, limit int) (list []queue.Stats, more bool, err error) {
	if name == "" {
		return t.q.AllStats(ctx, t.se.run.ID, after, limit)
	}
	s, err := t.q.Stats(ctx, t.se.run.ID, name)
	if err != nil {
		return nil, false, err
	}
	return []queue.Stats{s}, false, nil
}

// List returns tasks of a queue in a state. next is the value of after for the
// next page, or "".
func (t Tasks) List(ctx context.Context, name string, state queue.State, after string, limit int) (list []queue.Task, next string, err error) {
	return t.q.List(ctx, t.se.run.ID, name, state, after, limit)
}

// Redrive returns dead tasks to their queue with a fresh set of attempts.
func (t Tasks) Redrive(ctx context.Context, name string, ids []uuid.UUID) ([]uuid.UUID, error) {
	return t.q.Redrive(ctx, t.se.run.ID, name, ids, t.mayEnd)
}

// Pause stops a queue from handing out tasks until Resume. It reports whether
// the queue was running before.
func (t Tasks) Pause(ctx context.Context, name, reason string) (bool, error) {
	return t.q.Pause(ctx, t.se.run.ID, name, t.se.actor.Path, reason)
}

// Resume ends a pause. It reports whether the queue was paused before.
func (t Tasks) Resume(ctx context.Context, name string) (bool, error) {
	return t.q.Resume(ctx, t.se.run.ID, name, t.se.actor.Path)
}

// RunTasks returns the queues of a run for its operator, who claims nothing.
func (s *State) RunTasks(ctx context.Context, name string) (t Tasks, err error) {
	return t, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, name)
		if !ok {
			return notFound("run %q", name)
		}
		operator := &party{actor: Actor{Role: Operator, Path: operatorPath}, run: run}
		t = Tasks{&Session{party: operator}, s.queue}
		return nil
	})
}
