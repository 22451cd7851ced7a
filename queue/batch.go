package queue

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Bounds of a batch, be it enqueued or submitted.
const (
	MaxBatch      = 100     // tasks
	MaxBatchBytes = 8 << 20 // payloads or results, all together
)

// EnqueueMany is Enqueue of 1 to MaxBatch tasks in one transaction: all or, with
// an error that says at which it was, none. Those of one priority of one queue
// are ready in the order given. The answer is in that order, too; a task comes
// twice where two that were given have one idempotency key.
func (q *Queue) EnqueueMany(ctx context.Context, list []NewTask) (tasks []Task, err error) {
	sizes := make([]int, 0, len(list))
	for i := range list {
		sizes = append(sizes, len(list[i].Payload))
	}
	if err := checkBatch("tasks", "payloads", sizes); err != nil {
		return nil, err
	}
	drafts := make([]*draft, 0, len(list))
	tasks = make([]Task, 0, len(list))
	for i := range list {
		d, err := list[i].draft()
		if err != nil {
			return nil, fmt.Errorf("task %d of %d: %w", i+1, len(list), err)
		}
		drafts = append(drafts, d)
	}
	defer caught(&err)
	book := new(ledger)
	err = q.eng.Update(ctx, func(tx engine.Tx) error { // whose error undoes it
		tasks = tasks[:0]
		*book = ledger{Tx: tx}
		for i := range drafts {
			t, err := q.enqueue(book, drafts[i])
			if err != nil {
				return fmt.Errorf("task %d of %d: %w", i+1, len(drafts), err)
			}
			tasks = append(tasks, t)
		}
		book.close()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tasks, nil
}

// A Submission is the end of one execution.
type Submission struct {
	ID     uuid.UUID
	Token  uint64
	State  State           // Completed or Failed
	Result json.RawMessage // or the error; at most MaxResult bytes; nil: none
}

// A Submitted answers a Submission: with the task as it is now, or why it was
// refused, as Submit does.
type Submitted struct {
	Task Task
	Err  error
}

// SubmitMany is Submit of 1 to MaxBatch tasks in one transaction. Each has an
// answer of its own, in the order given, and one that is refused stops no other.
// With an error none was submitted, or it is not known.
func (q *Queue) SubmitMany(ctx context.Context, h holder, run uuid.UUID, list []Submission) (answers []Submitted, err error) {
	sizes := make([]int, 0, len(list))
	for i := range list {
		sizes = append(sizes, len(list[i].Result))
	}
	if err := checkBatch("submissions", "results", sizes); err != nil {
		return nil, err
	}
	answers = make([]Submitted, len(list))
	err = q.update(ctx, func(tx *ledger) error {
		clear(answers)
		for i := range list {
			a := &answers[i]
			if a.Err = list[i].check(); a.Err == nil {
				a.Err = q.submit(tx, h, run, &list[i], &a.Task)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return answers, nil
}

func checkBatch(argument, what string, sizes []int) error {
	if len(sizes) < 1 || len(sizes) > MaxBatch {
		return argumentError(argument, "must be 1 to %d", MaxBatch)
	}
	sum := 0
	for _, n := range sizes {
		sum += n
	}
	if sum > MaxBatchBytes {
		return &registry.LimitError{Which: "bytes of all " + what + " together", Max: MaxBatchBytes}
	}
	return nil
}
