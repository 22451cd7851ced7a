package queue

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
	"github.com/leasehold/leasehold/registry"
)

// Bounds of what may be asked.
const (
	MaxPriority     = 9
	MaxAttempts     = 100
	DefaultAttempts = 5
	MaxDelay        = 30 * 24 * time.Hour
	MaxPayload      = 1 << 20 // bytes
	MaxResult       = 1 << 20 // bytes
	MaxKey          = 256     // bytes of an idempotency key
	MaxCount        = 100     // tasks of one claim
	MaxClaimBytes   = 2 << 20 // payloads of one claim of several tasks
	MaxQueues       = 16      // queues of one claim
	MaxReason       = 512     // bytes
)

// Scope is the scope of the leases that claims are.
const Scope = "queue"

// Options of a Queue. The zero value is a production one.
type Options struct {
	Retention     time.Duration // of finished tasks; 24 h
	DeadRetention time.Duration // of dead ones; 7 days
	BackoffBase   time.Duration // most of the delay after a first attempt; 2 s
	BackoffMax    time.Duration // 10 min
	// Rand gives a number from 0 to n-1. Nil: a random one.
	Rand func(n int64) int64
}

// A Queue is the queues of all runs.
type Queue struct {
	eng    engine.Engine
	core   *registry.Core
	leases *registry.Registry
	opts   Options
}

// New returns the queues over eng, whose claims are leases of core.
func New(eng engine.Engine, core *registry.Core, opts Options) *Queue {
	opts.Retention = cmp.Or(opts.Retention, 24*time.Hour)
	opts.DeadRetention = cmp.Or(opts.DeadRetention, 7*24*time.Hour)
	opts.BackoffBase = cmp.Or(opts.BackoffBase, 2*time.Second)
	opts.BackoffMax = cmp.Or(opts.BackoffMax, 10*time.Minute)
	if opts.Rand == nil {
		opts.Rand = rand.Int64N
	}
	q := &Queue{eng: eng, core: core, leases: core.Registry(Scope), opts: opts}
	core.OnFreed(Scope, q.freed)
	return q
}

var (
	// ErrNotFound answers a task that is not there, or in another run; the
	// error that wraps it says which.
	ErrNotFound = errors.New("no such task in this run, or it was finished and has been forgotten")

	// ErrKeyReused answers an enqueue under an idempotency key that another
	// payload of the same queue has.
	ErrKeyReused = errors.New("idempotency_key is in use for another payload; use a new one")
)

func notFound(id uuid.UUID) error { return fmt.Errorf("task %s: %w", id, ErrNotFound) }

// A StaleError answers a claim that is not the task's any more. The task is as
// it stands now.
type StaleError struct {
	Task  Task
	Token uint64
}

func (e *StaleError) Error() string {
	s := fmt.Sprintf("token %d is stale: task %s is %s", e.Token, e.Task.ID, e.Task.State)
	if e.Task.State == InProgress {
		s += " by " + e.Task.last().Path
	}
	return s + "; drop what you did and claim another task"
}

// NewTask says what to enqueue.
type NewTask struct {
	Run         uuid.UUID
	Queue       string
	Payload     json.RawMessage
	Priority    int
	Delay       time.Duration // or
	RunAt       time.Time
	MaxAttempts int    // 0: DefaultAttempts
	Key         string // idempotency key; ""
	By          string // path of the actor
}

// Enqueue writes a task. It is durable when Enqueue returns. With an
// idempotency key in use the task that has it is returned, whatever its state.
func (q *Queue) Enqueue(ctx context.Context, n NewTask) (t Task, err error) {
	d, err := n.draft()
	if err != nil {
		return Task{}, err
	}
	return t, q.update(ctx, func(tx *ledger) (refusal error) {
		t, refusal = q.enqueue(tx, d)
		return refusal
	})
}

// A draft is what a NewTask becomes before anything is locked.
type draft struct {
	NewTask
	id   uuid.UUID
	line line
	size int               // of the payload
	row  record.Writer     // the payload's row
	hash [sha256.Size]byte // of the payload, if there is an idempotency key
}

// draft checks and completes a task. Its payload is compact from here on, so
// that white space makes no other one of it. Ids rise with time: rows of tasks
// that came together, and so will go together, lie together.
func (n NewTask) draft() (*draft, error) {
	n.MaxAttempts = cmp.Or(n.MaxAttempts, DefaultAttempts)
	if err := n.check(); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	compact.Grow(len(n.Payload))
	if err := json.Compact(&compact, n.Payload); err != nil {
		return nil, argumentError("payload", "must be valid JSON")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("queue: a new id: %w", err)
	}
	d := &draft{NewTask: n, id: id, line: lineOf(n.Run, n.Queue), size: compact.Len(), row: payloadRow(compact.Bytes())}
	if n.Key != "" {
		d.hash = sha256.Sum256(compact.Bytes())
	}
	return d, nil
}

// CheckName refuses what cannot be the name of a queue.
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

func (n NewTask) check() error {
	if err := CheckName("queue", n.Queue); err != nil {
		return err
	}
	switch {
	case len(n.Payload) > MaxPayload:
		return &registry.LimitError{Which: "bytes of a payload", Max: MaxPayload}
	case n.Priority < 0 || n.Priority > MaxPriority:
		return argumentError("priority", "must be from 0 to 9")
	case n.Delay < 0 || n.Delay > MaxDelay:
		return argumentError("delay_secs", "must be from 0 to %d", MaxDelay/time.Second)
	case n.Delay > 0 && !n.RunAt.IsZero():
		return argumentError("run_at", "must be left out where delay_secs is given")
	case n.RunAt.After(time.Now().Add(MaxDelay)):
		return argumentError("run_at", "must be within %d days", MaxDelay/(24*time.Hour))
	case n.MaxAttempts < 1 || n.MaxAttempts > MaxAttempts:
		return argumentError("max_attempts", "must be from 1 to %d", MaxAttempts)
	case len(n.Key) > MaxKey:
		return argumentError("idempotency_key", "must be at most %d bytes", MaxKey)
	}
	return nil
}

func argumentError(argument, problem string, args ...any) error {
	return &registry.ArgumentError{Argument: argument, Problem: fmt.Sprintf(problem, args...)}
}

// Heartbeat extends a claim to ttl from now, if that is later; zero stands for
// the ttl it has. Another session of the same actor that knows the token goes
// on with the task. It costs no disk write.
func (q *Queue) Heartbeat(ctx context.Context, h holder, run, id uuid.UUID, token uint64, ttl time.Duration) (lease registry.Lease, err error) {
	if ttl != 0 && (ttl < registry.MinTTL || ttl > registry.MaxTTL) {
		return registry.Lease{}, argumentError("ttl_secs", "must be from %d to %d", registry.MinTTL/time.Second, registry.MaxTTL/time.Second)
	}
	return lease, q.update(ctx, func(tx *ledger) error {
		l, err := q.held(tx, h, run, id, token, new(Task))
		if err != nil {
			return err
		}
		if !q.core.Open(tx, h.Session) {
			return registry.ErrSessionEnded
		}
		lease = q.leases.Extend(tx, l, cmp.Or(ttl, l.TTL), h.Session)
		return nil
	})
}

// Submit finishes a task, Completed with its result or Failed with its error.
func (q *Queue) Submit(ctx context.Context, h holder, run, id uuid.UUID, token uint64, state State, result json.RawMessage) (t Task, err error) {
	s := Submission{ID: id, Token: token, State: state, Result: result}
	if err := s.check(); err != nil {
		return Task{}, err
	}
	err = q.update(ctx, func(tx *ledger) error { return q.submit(tx, h, run, &s, &t) })
	return t, err
}

func (s *Submission) check() error {
	switch {
	case s.State != Completed && s.State != Failed:
		return argumentError("status", "must be completed or failed")
	case len(s.Result) > MaxResult:
		return &registry.LimitError{Which: "bytes of a result", Max: MaxResult}
	case len(s.Result) > 0 && !json.Valid(s.Result):
		return argumentError("result", "must be valid JSON")
	}
	return nil
}

// Nack gives a task back for another attempt, after delay or, if that is nil,
// after a random time that grows with each attempt.
func (q *Queue) Nack(ctx context.Context, h holder, run, id uuid.UUID, token uint64, delay *time.Duration, reason string) (t Task, err error) {
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
	return q.back(ctx, h, run, id, token, cause, func(t Task) time.Duration {
		if delay != nil {
			return *delay
		}
		return q.backoff(t.Attempt)
	})
}

// Abandon gives a task back for another attempt at once.
func (q *Queue) Abandon(ctx context.Context, h holder, run, id uuid.UUID, token uint64) (Task, error) {
	return q.back(ctx, h, run, id, token, causeAbandon, func(Task) time.Duration { return 0 })
}

func (q *Queue) back(ctx context.Context, h holder, run, id uuid.UUID, token uint64, cause string, delay func(Task) time.Duration) (t Task, err error) {
	err = q.update(ctx, func(tx *ledger) error {
		lease, err := q.held(tx, h, run, id, token, &t)
		if err != nil {
			t = Task{}
			return err
		}
		q.leases.Free(tx, lease, registry.Released)
		q.giveBack(tx, &t, cause, delay(t))
		return nil
	})
	return t, err
}

// Cancel finishes a task without a result; one that is finished stays as it
// is.
func (q *Queue) Cancel(ctx context.Context, run, id uuid.UUID) (t Task, err error) {
	return t, q.update(ctx, func(tx *ledger) (refusal error) {
		t, refusal = q.cancel(tx, run, id)
		return refusal
	})
}

// Redrive gives dead tasks of a queue all their attempts again: those named,
// or with none named the first MaxRedrive. It returns those it did.
func (q *Queue) Redrive(ctx context.Context, run uuid.UUID, queue string, ids []uuid.UUID) (done []uuid.UUID, err error) {
	if err := CheckName("queue", queue); err != nil {
		return nil, err
	}
	if len(ids) > MaxRedrive {
		return nil, argumentError("task_ids", "must be at most %d", MaxRedrive)
	}
	return done, q.update(ctx, func(tx *ledger) error {
		done = nil
		named := ids
		if len(named) == 0 {
			named = firstDead(tx, lineOf(run, queue))
		}
		for _, id := range named {
			if t, ok := getTask(tx, id); ok && t.Run == run && t.Queue == queue && t.State == Dead {
				q.redrive(tx, &t)
				done = append(done, id)
			}
		}
		return nil
	})
}

func firstDead(tx *ledger, l line) (ids []uuid.UUID) {
	in := deadIndex(l)
	for row := range in.entries(tx) {
		if len(ids) == 0 {
			in.passed(tx, in.tail(row))
		}
		if ids = append(ids, in.idAt(row)); len(ids) == MaxRedrive {
			break
		}
	}
	return ids
}

// MaxRedrive is how many tasks one Redrive takes.
const MaxRedrive = 100

// backoff is a random delay after an attempt: from nothing to a bound that
// doubles with each, so that those who failed together do not come back
// together.
func (q *Queue) backoff(attempt int) time.Duration {
	bound := q.opts.BackoffMax
	if shift := attempt - 1; shift < 32 && q.opts.BackoffBase<<shift < bound {
		bound = q.opts.BackoffBase << shift
	}
	return time.Duration(q.opts.Rand(int64(bound) + 1))
}

func (q *Queue) retention(s State) time.Duration {
	if s == Dead {
		return q.opts.DeadRetention
	}
	return q.opts.Retention
}

// update runs one rule. A rule's refusal is its answer, not a fault of the
// transaction.
func (q *Queue) update(ctx context.Context, rule func(*ledger) error) (err error) {
	defer caught(&err)
	book := new(ledger) // before the engine is locked
	err = q.eng.Update(ctx, func(tx engine.Tx) error {
		*book = ledger{Tx: tx}
		book.refusal = rule(book)
		book.close()
		return nil
	})
	return cmp.Or(err, book.refusal)
}

// view runs what changes nothing.
func (q *Queue) view(ctx context.Context, look func(*ledger) error) (err error) {
	defer caught(&err)
	return q.eng.View(ctx, func(tx engine.Tx) error { return look(&ledger{Tx: tx}) })
}
