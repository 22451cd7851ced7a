package queue

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A Detail is a task with its payload and result.
type Detail struct {
	Task
	Payload json.RawMessage
	Result  json.RawMessage // of a finished task; nil if none was submitted
}

// Get returns a task.
func (q *Queue) Get(ctx context.Context, run, id uuid.UUID) (d Detail, err error) {
	err = q.eng.View(ctx, func(tx engine.Tx) error {
		t, err := getTaskOf(&ledger{Tx: tx, q: q}, run, id)
		if err != nil {
			return err
		}
		t.shownBy(tx)
		d.Task = t
		if lease, ok := q.leases.Get(tx, id.String()); ok {
			d.ExpiresIn = max(0, lease.Deadline.Sub(tx.Now()))
		}
		return nil
	})
	if err != nil {
		return Detail{}, err
	}
	row, ok, err := q.eng.Get(ctx, payloadKey(id))
	if err != nil {
		return Detail{}, err
	}
	if ok {
		payload, _, ok := splitPayload(row.Value)
		if !ok {
			return Detail{}, corruptTask(id, row.Key)
		}
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

// Wait waits until the task is finished or wait is over, and then returns what
// Get does.
func (q *Queue) Wait(ctx context.Context, run, id uuid.UUID, wait time.Duration) (d Detail, err error) {
	if err := registry.CheckWait(wait); err != nil {
		return Detail{}, err
	}
	watch := q.eng.Watch(taskKey(id))
	defer watch.Stop()
	return d, engine.Await(ctx, watch, wait, func(last bool) error {
		d, err = q.Get(ctx, run, id)
		if err == nil && !d.State.Finished() && !last {
			return engine.ErrWait
		}
		return err
	})
}

// Stats counts the tasks of a queue of a run.
func (q *Queue) Stats(ctx context.Context, run uuid.UUID, queue string) (s Stats, err error) {
	if err := CheckName("queue", queue); err != nil {
		return Stats{}, err
	}
	return s, q.eng.View(ctx, func(tx engine.Tx) error {
		a, err := accountAt(tx, run, queue)
		s = a.stats
		s.readPause(tx, lineOf(run, queue))
		return err
	})
}

// accountAt returns the account of a queue; it is an error if that has no
// tasks.
func accountAt(tx engine.Tx, run uuid.UUID, queue string) (a account, err error) {
	if a.read(tx, lineOf(run, queue)); !a.counted {
		return a, fmt.Errorf("%w %q in this run", ErrNoQueue, queue)
	}
	return a, nil
}

// MaxStats is the largest number of queues in one listing.
const MaxStats = 1000

// AllStats counts the tasks of the queues of a run, in the order of their
// names. It lists up to limit queues after a name, and reports whether there
// are more. limit is at most MaxStats.
func (q *Queue) AllStats(ctx context.Context, run uuid.UUID, after string, limit int) (list []Stats, more bool, err error) {
	if limit < 1 || limit > MaxStats {
		return nil, false, argumentError("limit", "must be from 1 to %d", MaxStats)
	}
	err = q.eng.Snapshot(ctx, func(tx engine.Tx) error {
		list, more = nil, false
		for row := range tx.ScanFrom(string(lineOf(run, "")), string(lineOf(run, after))+"\x00") {
			if more = len(list) == limit; more {
				return nil
			}
			var a account
			a.read(tx, line(row.Key))
			a.stats.readPause(tx, line(row.Key))
			list = append(list, a.stats)
		}
		return ctx.Err()
	})
	return list, more, err
}

// List returns at most limit tasks of a queue in a state. Ready tasks are in
// the order in which they are claimed, delayed ones by when they are due, and
// finished ones by when they are forgotten. Tasks that cannot be read are left
// out. If there are more, next is the value of after that continues the list.
func (q *Queue) List(ctx context.Context, run uuid.UUID, queue string, state State, after string, limit int) (list []Task, next string, err error) {
	if err := CheckName("queue", queue); err != nil {
		return nil, "", err
	}
	from, err := hex.DecodeString(after)
	if err != nil {
		return nil, "", argumentError("after", "must be next of the previous reply")
	}
	l := lineOf(run, queue)
	err = q.eng.Snapshot(ctx, func(tx engine.Tx) error {
		book := &ledger{Tx: tx, q: q}
		list, next = nil, ""
		if _, err := accountAt(tx, run, queue); err != nil {
			return err
		}
		last := string(from)
		add := func(t Task, place string) (more bool) {
			if len(list) == limit {
				next = hex.EncodeToString([]byte(last))
				return false
			}
			t.shownBy(tx)
			list, last = append(list, t), place
			return ctx.Err() == nil
		}
		if state == InProgress && book.accountOf(l).stats.InProgress > 0 {
			for claim := range q.leases.Leases(tx, "", last) {
				id, _ := uuid.Parse(claim.Key)
				t, err := getTask(book, id)
				t.ExpiresIn = max(0, claim.Deadline.Sub(tx.Now()))
				if err == nil && t.line == l && !add(t, claim.Key) {
					break
				}
			}
			return ctx.Err()
		}
		for i, in := range indexesOfState(l, state) {
			here, bound := string([]byte{byte(i)}), "" // a place is the index's number and the tail
			if tail, on := strings.CutPrefix(string(from), here); on {
				bound = tail + "\x00"
			} else if here < string(from) {
				continue
			}
			for row := range tx.ScanFrom(in.prefix, in.prefix+max(bound, in.lowerBound(book))) {
				if t := (Task{}); in.taskAt(book, row, &t) && !add(t, here+in.tail(row)) {
					return ctx.Err()
				}
			}
		}
		return ctx.Err()
	})
	return list, next, err
}

// QueueOf returns the queue of a claim's task, or "" if there is none.
func (q *Queue) QueueOf(tx engine.Tx, claim registry.Lease) string {
	id, _ := uuid.Parse(claim.Key)
	t, err := getTask(&ledger{Tx: tx, q: q}, id)
	if err != nil {
		return ""
	}
	return t.Queue
}
