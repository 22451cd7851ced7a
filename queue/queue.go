package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// Bounds on arguments.
const (
	MaxPriority     = 9
	MaxAttempts     = 100
	DefaultAttempts = 5
	MaxDelay        = 30 * 24 * time.Hour
	MaxPayload      = 1 << 20  // bytes
	MaxResult       = 1 << 20  // bytes
	MaxKey          = 256      // bytes of an idempotency key
	MaxCount        = 100      // tasks of one claim
	MaxClaimBytes   = 32 << 10 // payloads of one claim of several tasks, which a model has to see whole
	MaxQueues       = 16       // queues of one claim
	MaxReason       = 512      // bytes
	MaxBatch        = 100      // tasks that are enqueued or submitted in one call
	MaxBatchBytes   = 8 << 20  // their payloads or results, all together
	MaxRedrive      = 100      // tasks of one Redrive
)

// Defaults of the limits in [Options].
const (
	DefaultQueuesPerRun   = 10_000
	DefaultQueuesPerActor = 1000
	DefaultTasks          = 10_000_000
	DefaultBytes          = 4 << 30
	DefaultWaitsPerQueue  = 1000
	DefaultWaitsPerActor  = 100
)

// Scope is the scope of claims, which are leases.
const Scope = "queue"

// Options of a Queue. The zero value is for production.
type Options struct {
	Retention     time.Duration // of finished tasks; 24 h
	DeadRetention time.Duration // of dead tasks; 7 days
	BackoffMax    time.Duration // 10 min

	MaxQueuesPerRun   int   // with tasks; 10 000
	MaxQueuesPerActor int   // queues with tasks that one actor began; 1000
	MaxTasks          int64 // of a queue, not counting finished ones; 10 million
	MaxBytes          int64 // payloads of these tasks; 4 GiB
	MaxWaitsPerQueue  int   // claims that wait at one queue; 1000
	MaxWaitsPerActor  int   // claims of one actor that wait; 100

	// Rand returns a number from 0 to n-1. If it is nil, a random number
	// generator is used.
	Rand func(n int64) int64
}

// A Queue is the queues of all runs.
type Queue struct {
	eng    engine.Engine
	core   *registry.Core
	leases *registry.Registry
	opts   Options
	room   waitingRoom
	offset atomic.Int64 // wall clock minus running clock when the queues were last planned

	// Guarded by the engine's lock.
	place  uint64 // the last one given
	fronts map[string]front
}

// New returns the queues over eng, whose claims are leases of core.
func New(eng engine.Engine, core *registry.Core, opts Options) *Queue {
	opts.Retention = cmp.Or(opts.Retention, 24*time.Hour)
	opts.DeadRetention = cmp.Or(opts.DeadRetention, 7*24*time.Hour)
	opts.BackoffMax = cmp.Or(opts.BackoffMax, 10*time.Minute)
	opts.MaxQueuesPerRun = cmp.Or(opts.MaxQueuesPerRun, DefaultQueuesPerRun)
	opts.MaxQueuesPerActor = cmp.Or(opts.MaxQueuesPerActor, DefaultQueuesPerActor)
	opts.MaxTasks = cmp.Or(opts.MaxTasks, DefaultTasks)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultBytes)
	opts.MaxWaitsPerQueue = cmp.Or(opts.MaxWaitsPerQueue, DefaultWaitsPerQueue)
	opts.MaxWaitsPerActor = cmp.Or(opts.MaxWaitsPerActor, DefaultWaitsPerActor)
	if opts.Rand == nil {
		opts.Rand = rand.Int64N
	}
	q := &Queue{eng: eng, core: core, leases: core.Registry(Scope), opts: opts, fronts: make(map[string]front)}
	core.OnFreed(Scope, q.freed)
	return q
}

var (
	// ErrNotFound refuses a task that does not exist, or is in another run. The
	// error that wraps it says which task.
	ErrNotFound = errors.New("no such task in this run, or it was finished and has been forgotten")

	// ErrNoQueue refuses a queue that has no tasks, not even finished ones. The
	// error that wraps it says which queue.
	ErrNoQueue = errors.New("no queue")

	// ErrKeyReused refuses an enqueue whose idempotency key belongs to another
	// payload of the same queue.
	ErrKeyReused = errors.New("idempotency_key is in use for another payload; use a new one")
)

func notFound(id uuid.UUID) error { return fmt.Errorf("task %s: %w", id, ErrNotFound) }

// corrupt returns the error for a record that cannot be read.
func corrupt(key string) error {
	return fmt.Errorf("%w: %q: not what this version writes", engine.ErrCorrupt, key)
}

// corruptTask is corrupt for a task's record.
func corruptTask(id uuid.UUID, key string) error {
	return fmt.Errorf("task %s cannot be read, and nothing else is affected; leasehold doctor --state shows what is left of it: %w", id, corrupt(key))
}

// A StaleError refuses a call whose claim on the task has ended. Task is the
// task as it is now.
type StaleError struct {
	Task  Task
	Token uint64
	// Differs says that the token is that of the execution that finished the
	// task, and that it submitted another status or result.
	Differs bool
	result  string // if Differs: what was submitted
}

func (e *StaleError) Error() string {
	if e.Differs {
		return fmt.Sprintf("task %s was already submitted as %s with another result, which it keeps; task_result shows it", e.Task.ID, e.Task.State)
	}
	s := fmt.Sprintf("token %d is stale: task %s is %s", e.Token, e.Task.ID, e.Task.State)
	if e.Task.State == InProgress {
		s += " by " + event.Who(e.Task.last().Path, e.Task.last().Party)
	}
	return s + "; drop what you did and claim another task"
}

// CheckName refuses a name that a queue cannot have.
func CheckName(argument, name string) error {
	if !isName(name) {
		return argumentError(argument, "must be 1 to 64 of A-Z a-z 0-9 . _ -")
	}
	return nil
}

func isName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}

func argumentError(argument, problem string, args ...any) error {
	return &registry.ArgumentError{Argument: argument, Problem: fmt.Sprintf(problem, args...)}
}

// backoffBase is the longest delay after a first attempt.
const backoffBase = 2 * time.Second

// backoff returns a random delay after an attempt, up to a bound that doubles
// with each, so that tasks that failed together are not retried together.
func (q *Queue) backoff(attempt int) time.Duration {
	bound := q.opts.BackoffMax
	if shift := attempt - 1; shift < 32 && backoffBase<<shift < bound {
		bound = backoffBase << shift
	}
	return time.Duration(q.opts.Rand(int64(bound) + 1))
}

// update runs one rule in a transaction. An error of the rule rolls it back,
// except [engine.ErrWait], with which a claim takes its place in line. The
// transaction is durable, unless holder runs on this machine, because then its
// claim need not survive the machine. holder is nil except for rules about a
// claim.
//
// If the store cannot read part of an index, update runs the rule again with a
// careful ledger, which reads no further than it must. If that fails too,
// update raises the lower bounds of the damaged indexes past the damage.
func (q *Queue) update(ctx context.Context, holder *registry.Holder, rule func(*ledger) error) error {
	local := holder != nil && holder.Local
	if local {
		ctx = engine.Local(ctx)
	}
	book := new(ledger) // before the engine is locked
	for {
		err := q.eng.Update(ctx, func(tx engine.Tx) error {
			*book = ledger{Tx: tx, q: q, careful: book.careful}
			if !local {
				tx.Sync()
			}
			if book.answer = rule(book); book.answer != nil && book.answer != engine.ErrWait {
				return book.answer
			}
			book.close()
			return nil
		})
		if err == nil || err == book.answer || !errors.Is(err, engine.ErrCorrupt) {
			return cmp.Or(err, book.answer)
		}
		if book.careful {
			if err := q.passOver(ctx, err); err != nil {
				return err
			}
		}
		book.careful = true
	}
}

// entered runs a rule in a transaction that is already open.
func (q *Queue) entered(tx engine.Tx, rule func(*ledger)) {
	if book, ok := tx.(*ledger); ok {
		rule(book)
		return
	}
	book := ledger{Tx: tx, q: q}
	rule(&book)
	book.close()
}
