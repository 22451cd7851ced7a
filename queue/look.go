package queue

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

// A Detail is a task with all there is of it.
type Detail struct {
	Task
	Payload  json.RawMessage
	Result   json.RawMessage // of a finished one; nil if none was submitted
	Deadline time.Time       // of the claim on one in progress
}

// Get returns a task.
func (q *Queue) Get(ctx context.Context, run, id uuid.UUID) (d Detail, err error) {
	err = q.view(ctx, func(tx *ledger) error {
		t, ok := getTask(tx, id)
		if !ok || t.Run != run {
			return notFound(id)
		}
		d.Task = t
		if lease, ok := q.leases.Get(tx, id.String()); ok {
			d.Deadline = lease.Deadline
		}
		return nil
	})
	if err != nil {
		return Detail{}, err
	}
	defer caught(&err)
	row, ok, err := q.eng.Get(ctx, payloadKey(id))
	if err != nil {
		return Detail{}, err
	}
	if ok {
		payload, _ := payloadOf(row)
		d.Payload = json.RawMessage(payload)
	}
	switch {
	case d.result.apart:
		row, _, err = q.eng.Get(ctx, resultKey(id))
		d.Result = json.RawMessage(row.Value)
	case d.result.text != "":
		d.Result = json.RawMessage(d.result.text)
	}
	return d, err
}

// Wait is Get once the task is finished, or wait is over.
func (q *Queue) Wait(ctx context.Context, run, id uuid.UUID, wait time.Duration) (Detail, error) {
	if wait < 0 || wait > registry.MaxWait {
		return Detail{}, argumentError("wait_secs", "must be from 0 to %d", registry.MaxWait/time.Second)
	}
	watch := q.eng.Watch(taskKey(id))
	defer watch.Stop()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		d, err := q.Get(ctx, run, id)
		if err != nil || d.State.Finished() {
			return d, err
		}
		select {
		case <-watch.C:
		case <-timeout.C:
			return d, nil
		case <-ctx.Done():
			return Detail{}, context.Cause(ctx)
		}
	}
}

// Stats counts the tasks of a queue of a run, or with "" of all that have any.
func (q *Queue) Stats(ctx context.Context, run uuid.UUID, queue string) (list []Stats, err error) {
	if queue != "" {
		if err := CheckName("queue", queue); err != nil {
			return nil, err
		}
	}
	return list, q.view(ctx, func(tx *ledger) error {
		if queue != "" {
			list = append(list, tx.accountOf(lineOf(run, queue)).stats)
			return nil
		}
		for row := range tx.Scan(string(lineOf(run, ""))) {
			var a account
			a.read(tx, line(row.Key))
			list = append(list, a.stats)
		}
		return nil
	})
}

// List returns tasks of a queue in a state, at most limit: ready ones in the
// order in which they are claimed, delayed ones by when they are due, finished
// ones by when they are forgotten.
func (q *Queue) List(ctx context.Context, run uuid.UUID, queue string, state State, limit int) (list []Task, err error) {
	if err := CheckName("queue", queue); err != nil {
		return nil, err
	}
	l := lineOf(run, queue)
	return list, q.view(ctx, func(tx *ledger) error {
		add := func(t Task) bool {
			if t.State == state && t.line == l {
				list = append(list, t)
			}
			return len(list) < limit
		}
		if state == InProgress {
			for _, standing := range q.leases.List(tx, "") {
				if id, err := uuid.Parse(standing.Key); err == nil {
					if t, ok := getTask(tx, id); ok && !add(t) {
						return nil
					}
				}
			}
			return nil
		}
		for _, in := range standsIn(l, state) {
			for row := range in.entries(tx) {
				if !add(in.taskAt(tx, row)) {
					return nil
				}
			}
		}
		return nil
	})
}

// standsIn are the indexes that tasks in a state stand in.
func standsIn(l line, state State) (list []index) {
	switch state {
	case Ready:
		for priority := MaxPriority; priority >= 0; priority-- {
			list = append(list, readyIndex(l, priority))
		}
		return list
	case Delayed:
		return []index{delayedIndex(l)}
	case Dead:
		return []index{deadIndex(l)}
	default:
		return []index{finishedIndex(l)}
	}
}
