package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// A NewTask is a task to enqueue.
type NewTask struct {
	Run         uuid.UUID
	Queue       string
	Payload     json.RawMessage
	IsJSON      bool // Payload is known to be valid JSON, and is not checked again
	Priority    int
	Delay       time.Duration // or
	RunAt       time.Time     // by the wall clock
	MaxAttempts int           // 0: DefaultAttempts
	Key         string        // idempotency key; "": none
	Actor       uuid.UUID     // that enqueues
	By          string        // path of that actor
	Trace       string        // traceparent that the task carries; "": none
	Fence       registry.Fence
}

// EnqueueKind is the kind of an enqueue's answer.
const EnqueueKind call.Kind = "enqueue"

// Enqueue writes a task. It is durable when Enqueue returns. If the idempotency
// key is in use, Enqueue returns the task that has it, whatever its state. A
// call that is sent again gets the task of the first call. In both cases
// nothing is written, so the Fence is not checked.
func (q *Queue) Enqueue(ctx context.Context, n NewTask) (Task, error) {
	tasks, err := q.enqueue(ctx, []NewTask{n})
	if err != nil {
		return Task{}, err
	}
	return tasks[0], nil
}

// EnqueueMany is Enqueue for 1 to MaxBatch tasks in one transaction. It writes
// all of them, or none and returns an error that says which one was refused.
// Tasks of one priority in one queue become ready in the order given. The
// result is in that order, too. It contains a task twice if two of the given
// tasks have the same idempotency key.
func (q *Queue) EnqueueMany(ctx context.Context, list []NewTask) ([]Task, error) {
	if err := checkBatch("tasks", "payloads", list, func(n *NewTask) int { return len(n.Payload) }); err != nil {
		return nil, err
	}
	return q.enqueue(ctx, list)
}

func atTask(i, of int, err error) error {
	if of == 1 {
		return err
	}
	return fmt.Errorf("task %d of %d: %w", i+1, of, err)
}

func (q *Queue) enqueue(ctx context.Context, list []NewTask) (tasks []Task, err error) {
	drafts := make([]*draft, 0, len(list))
	for i := range list {
		d, err := list[i].draft()
		if err != nil {
			return nil, atTask(i, len(list), err)
		}
		drafts = append(drafts, d)
	}
	c := call.Of(ctx)
	err = q.update(ctx, nil, func(tx *ledger) error {
		tasks = make([]Task, 0, len(drafts))
		answer, answered, err := c.Answered(tx, EnqueueKind)
		if err != nil {
			return err
		}
		if answered {
			tasks, err = enqueuedBefore(tx, answer)
			return err
		}
		w := record.New(18 * len(drafts))
		for i, d := range drafts {
			t, fresh, err := q.enqueueOne(tx, d)
			if err != nil {
				return atTask(i, len(drafts), err)
			}
			t.shownBy(tx)
			tasks = append(tasks, t)
			w.ID(t.ID)
			w.Flags(fresh)
		}
		c.Record(tx, EnqueueKind, w.String(), 0)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// enqueueOne is the rule for one task. It reports whether the task is new.
func (q *Queue) enqueueOne(tx *ledger, d *draft) (t Task, fresh bool, err error) {
	if d.Key != "" {
		t, known, err := q.knownBy(tx, d)
		if err != nil || known {
			return t, false, err
		}
	}
	if err := d.Fence.Check(tx); err != nil {
		return Task{}, false, err
	}
	wall := tx.Wall()
	if d.RunAt.After(wall.Add(MaxDelay)) {
		return Task{}, false, argumentError("run_at", "must be within %d days", MaxDelay/(24*time.Hour))
	}
	if err := q.mayGrow(tx, d); err != nil {
		return Task{}, false, err
	}
	if d.Key != "" {
		w := record.New(16 + len(d.hash))
		w.ID(d.id)
		w.Rest(string(d.hash[:]))
		tx.Put(engine.Row{Key: idemKey(d.line, d.Key), Value: w.String()})
	}
	t = Task{
		ID: d.id, Run: d.Run, Queue: d.Queue, Priority: d.Priority, MaxAttempts: d.MaxAttempts,
		Size: d.size, Key: d.Key, EnqueuedAt: wall, EnqueuedBy: d.By, Trace: d.Trace, line: d.line, draft: d,
	}
	t.note(tx, event.Event{Kind: event.TaskEnqueued, Actor: d.Actor, Path: d.By})
	if d.RunAt.After(wall) {
		t.State, t.due, t.byWall = Delayed, d.RunAt.Round(0).UTC(), true
		addToIndex(tx, &t)
	} else {
		q.schedule(tx, &t, d.Delay)
	}
	return t, true, nil
}

// knownBy finds the task that has the idempotency key of d.
func (q *Queue) knownBy(tx *ledger, d *draft) (t Task, known bool, err error) {
	row, ok := tx.Get(idemKey(d.line, d.Key))
	if !ok {
		return Task{}, false, nil
	}
	id, hash, ok := decodeIdem(row.Value)
	if !ok {
		return Task{}, false, corrupt(row.Key)
	}
	switch found, err := t.read(tx, id); {
	case err != nil:
		return Task{}, false, err
	case !found:
		return Task{}, false, nil
	case hash != string(d.hash[:]):
		return Task{}, false, ErrKeyReused
	}
	return t, true, nil
}

func decodeIdem(value string) (id uuid.UUID, hash string, ok bool) {
	r := record.Read(value)
	id, hash = r.ID(), r.Rest()
	return id, hash, r.Done() && len(hash) == sha256.Size
}

// mayGrow refuses a task that would exceed a limit of its queue, run or actor.
func (q *Queue) mayGrow(tx *ledger, d *draft) error {
	limit := func(which string, max int64) error { return &registry.LimitError{Which: which, Max: max} }
	a := tx.accountOf(d.line)
	switch {
	case int64(a.stats.unfinished()) >= q.opts.MaxTasks:
		return limit("tasks of queue "+d.Queue+" that are not finished", q.opts.MaxTasks)
	case int64(a.bytes)+int64(d.size) > q.opts.MaxBytes:
		return limit("bytes of tasks of queue "+d.Queue+" that are not finished", q.opts.MaxBytes)
	case !a.stats.empty():
		return nil
	}
	// The task would be the first of a queue.
	if tx.queuesOf(d.Run) >= q.opts.MaxQueuesPerRun {
		return limit("queues of this run that have tasks", int64(q.opts.MaxQueuesPerRun))
	}
	if d.Actor != uuid.Nil && tx.queuesOf(d.Actor) >= q.opts.MaxQueuesPerActor {
		return limit("queues that have tasks and were begun by this actor", int64(q.opts.MaxQueuesPerActor))
	}
	if !a.counted {
		a.actor = d.Actor
		tx.countQueue(a, 1)
	}
	return nil
}

// enqueuedBefore returns the tasks of an enqueue's recorded answer.
func enqueuedBefore(tx *ledger, answer string) (tasks []Task, err error) {
	for r := record.Read(answer); !r.Done(); {
		var fresh bool
		id := r.ID()
		r.Flags(&fresh)
		t, err := getTask(tx, id)
		if err != nil {
			return nil, err
		}
		t.shownBy(tx)
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// A draft is a NewTask that was checked and completed before anything is
// locked.
type draft struct {
	NewTask
	id   uuid.UUID
	line line
	size int               // of the payload
	row  record.Writer     // the payload's row
	hash [sha256.Size]byte // of the canonical payload, if there is an idempotency key
}

// draft checks and completes a task. It makes the payload compact, so that
// payloads that differ only in white space are the same. Ids increase with
// time, so that the rows of tasks that were enqueued together, and will
// probably be removed together, are stored together.
func (n NewTask) draft() (*draft, error) {
	n.MaxAttempts = cmp.Or(n.MaxAttempts, DefaultAttempts)
	if err := n.check(); err != nil {
		return nil, err
	}
	payload := []byte(n.Payload)
	if len(payload) == 0 || !n.IsJSON && !json.Valid(payload) {
		return nil, argumentError("payload", "must be valid JSON")
	}
	if bytes.ContainsAny(payload, " \t\r\n") {
		var compact bytes.Buffer
		_ = json.Compact(&compact, payload) // it is valid
		payload = compact.Bytes()
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("queue: a new id: %w", err)
	}
	row := record.New(len(payload) + recordRoom) // with room to append the record
	row.Bytes(payload)
	d := &draft{NewTask: n, id: id, line: lineOf(n.Run, n.Queue), size: len(payload), row: *row}
	if n.Key != "" {
		d.hash = sha256.Sum256(canonicalJSON(payload))
	}
	return d, nil
}

func (n *NewTask) check() error {
	if err := CheckName("queue", n.Queue); err != nil {
		return err
	}
	switch {
	case len(n.Payload) > MaxPayload:
		return &registry.LimitError{Which: "bytes of a payload", Max: MaxPayload, TooLarge: true}
	case n.Priority < 0 || n.Priority > MaxPriority:
		return argumentError("priority", "must be from 0 to 9")
	case n.Delay < 0 || n.Delay > MaxDelay:
		return argumentError("delay_secs", "must be from 0 to %d", MaxDelay/time.Second)
	case n.Delay > 0 && !n.RunAt.IsZero():
		return argumentError("run_at", "must be left out where delay_secs is given")
	case n.MaxAttempts < 1 || n.MaxAttempts > MaxAttempts:
		return argumentError("max_attempts", "must be from 1 to %d", MaxAttempts)
	case len(n.Key) > MaxKey:
		return argumentError("idempotency_key", "must be at most %d bytes", MaxKey)
	}
	return nil
}

func checkBatch[T any](argument, what string, list []T, size func(*T) int) error {
	if len(list) < 1 || len(list) > MaxBatch {
		return argumentError(argument, "must be 1 to %d", MaxBatch)
	}
	sum := 0
	for i := range list {
		sum += size(&list[i])
	}
	if sum > MaxBatchBytes {
		return &registry.LimitError{Which: "bytes of all " + what + " together", Max: MaxBatchBytes, TooLarge: true}
	}
	return nil
}
