package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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
	err = q.eng.View(ctx, func(tx engine.Tx) error {
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
	if d.Payload, err = q.read(ctx, payloadKey(id)); err != nil {
		return Detail{}, err
	}
	if d.State.Finished() {
		d.Result, err = q.read(ctx, resultKey(id))
	}
	return d, err
}

func (q *Queue) read(ctx context.Context, key string) (json.RawMessage, error) {
	row, ok, err := q.eng.Get(ctx, key)
	if err != nil || !ok {
		return nil, err
	}
	return json.RawMessage(row.Value), nil
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
	return list, q.eng.View(ctx, func(tx engine.Tx) error {
		if queue != "" {
			list = append(list, getStats(tx, lineOf(run, queue)))
			return nil
		}
		for row := range tx.Scan(statsKey(lineOf(run, ""))) {
			list = append(list, getStats(tx, line(row.Key[len(statsPrefix):])))
		}
		return nil
	})
}

// List returns tasks of a queue in a state, at most limit: ready ones in the
// order in which they are claimed, others by when they are due or, for dead
// ones, by id.
func (q *Queue) List(ctx context.Context, run uuid.UUID, queue string, state State, limit int) (list []Task, err error) {
	if err := CheckName("queue", queue); err != nil {
		return nil, err
	}
	l := lineOf(run, queue)
	return list, q.eng.View(ctx, func(tx engine.Tx) error {
		add := func(id uuid.UUID) bool {
			if t, ok := getTask(tx, id); ok && t.State == state {
				list = append(list, t)
			}
			return len(list) < limit
		}
		switch state {
		case Ready:
			for priority := MaxPriority; priority >= 0; priority-- {
				for row := range tx.Scan(readyKeys(l, priority)) {
					if !add(uuid.UUID([]byte(row.Value))) {
						return nil
					}
				}
			}
		case Delayed:
			for row := range tx.Scan(delayedKeys(l)) {
				if _, id := timeOf(row.Key); !add(id) {
					return nil
				}
			}
		case Dead:
			for row := range tx.Scan(deadKeys(l)) {
				if !add(uuid.UUID([]byte(row.Key[len(row.Key)-16:]))) {
					return nil
				}
			}
		case InProgress:
			for _, standing := range q.leases.List(tx, "") {
				if id := uuid.MustParse(standing.Key); !addOf(tx, l, id, add) {
					return nil
				}
			}
		default:
			for row := range tx.Scan(finishedKeys(l)) {
				if _, id := timeOf(row.Key); !add(id) {
					return nil
				}
			}
		}
		return nil
	})
}

func addOf(tx Tx, l line, id uuid.UUID, add func(uuid.UUID) bool) bool {
	if t, ok := getTask(tx, id); ok && t.line() == l {
		return add(id)
	}
	return true
}

// Drop removes all queues of a run, within the transaction that removes it. It
// takes as long as they are.
func (q *Queue) Drop(tx Tx, run uuid.UUID) {
	for row := range tx.Scan(statsKey(lineOf(run, ""))) {
		l := line(row.Key[len(statsPrefix):])
		for _, prefix := range []string{readyPrefix, delayedPrefix, finishedPrefix, deadPrefix, keyPrefix} {
			for row := range tx.Scan(prefix + string(l) + "\x00") {
				tx.Delete(row.Key)
			}
		}
		tx.Delete(row.Key)
	}
	for row := range tx.Scan(taskPrefix) {
		id := uuid.UUID([]byte(row.Key[len(taskPrefix):]))
		if t, ok := getTask(tx, id); ok && t.Run == run {
			if lease, ok := q.leases.Get(tx, id.String()); ok {
				q.leases.Free(tx, lease, registry.Released)
			}
			tx.Delete(taskKey(id))
			tx.Delete(payloadKey(id))
			tx.Delete(resultKey(id))
		}
	}
}

// Recover readies the queues of a state just opened: every record of a queue
// is read, so that one that cannot be is an [engine.ErrCorrupt] with its key.
func (q *Queue) Recover(ctx context.Context) error {
	return q.eng.View(ctx, func(tx engine.Tx) error {
		for row := range tx.Scan(statsPrefix) {
			if _, err := decodeStats("", row.Value); err != nil || len(row.Key) <= len(statsPrefix)+16 {
				return fmt.Errorf("%w: %q: %v", engine.ErrCorrupt, row.Key, errors.Join(err))
			}
		}
		return nil
	})
}
