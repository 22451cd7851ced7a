package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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

// A Claimed is a task that is the holder's until Deadline.
type Claimed struct {
	Task
	Payload  []byte
	Token    uint64
	Deadline time.Time
}

var errWaiting = errors.New("waiting")

// Claim takes up to Count tasks, or after a wait the one that came, or none.
// A call whose ctx ends has claimed nothing: what it was given in that instant
// is given back, and the attempt is not counted.
func (q *Queue) Claim(ctx context.Context, c Claim) ([]Claimed, error) {
	c.Count = cmp.Or(c.Count, 1)
	if err := c.check(); err != nil {
		return nil, err
	}
	call := claimCall{Claim: c}
	if c.Wait > 0 || c.RequestID != "" { // else nobody asks which call it was
		call.id = uuid.New()
	}
	for _, name := range c.Queues {
		if l := lineOf(c.Run, name); !slices.Contains(call.lines, l) {
			call.lines = append(call.lines, l)
		}
	}
	tasks, err := q.claim(ctx, &call)
	if ctx.Err() != nil { // whatever has come of it, also if it is not known
		return nil, q.withdraw(ctx, &call, tasks)
	}
	if err != nil {
		return nil, err
	}
	// Payloads never change, so they are read after the claim, where they
	// hold up nobody.
	return tasks, q.readPayloads(ctx, tasks)
}

// readPayloads gives each task its payload, and reads those that were not read
// ahead.
func (q *Queue) readPayloads(ctx context.Context, tasks []Claimed) (err error) {
	defer caught(&err)
	var keys []string
	for i := range tasks {
		if tasks[i].payload == "" {
			keys = append(slices.Grow(keys, len(tasks)-i), payloadKey(tasks[i].ID))
		}
	}
	var rows []engine.Row
	if len(keys) > 0 {
		rows, err = q.eng.Read(context.WithoutCancel(ctx), keys...)
	}
	for i := range tasks {
		t := &tasks[i]
		row := engine.Row{Key: payloadPrefix, Value: t.payload}
		if t.payload == "" && len(rows) > 0 {
			row, rows = rows[0], rows[1:]
		}
		if t.payload = ""; row.Value != "" { // else the task has been forgotten since
			payload, _ := payloadOf(row)
			t.Payload = []byte(payload)
		}
	}
	return err
}

// A claimCall is one claim on its way.
type claimCall struct {
	Claim
	id    uuid.UUID
	lines []line
	place uint64 // in the lines; 0: none yet
}

func (q *Queue) claim(ctx context.Context, call *claimCall) (tasks []Claimed, err error) {
	if call.Wait == 0 {
		return q.look(ctx, call, true)
	}
	// As with a lease: the watch stands before the first look, and the call
	// is known as asking before it has a place.
	watch := q.eng.Watch(givenKey(call.id))
	defer watch.Stop()
	defer q.core.Answering(ctx, call.id)()
	timeout := time.NewTimer(call.Wait)
	defer timeout.Stop()

	tasks, err = q.look(ctx, call, false)
	for errors.Is(err, errWaiting) {
		select {
		case <-watch.C:
			tasks, err = q.look(ctx, call, false)
		case <-timeout.C:
			tasks, err = q.look(ctx, call, true)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return tasks, err
}

func (q *Queue) look(ctx context.Context, call *claimCall, last bool) (tasks []Claimed, err error) {
	err = q.update(ctx, func(tx *ledger) (refusal error) {
		tasks, refusal = q.ask(tx, call, last)
		return refusal
	})
	return tasks, err
}

// ask says what has come of a call: what its request was given before, what it
// was handed, or what is ready. Else it is in line, unless this is the last
// look, by which its wait is over.
func (q *Queue) ask(tx *ledger, call *claimCall, last bool) ([]Claimed, error) {
	if !q.core.Open(tx, call.Holder.Session) {
		return nil, registry.ErrSessionEnded
	}
	given, ok := q.given(tx, call)
	if was, repeated := getRequest(tx, call.Holder.Session, call.RequestID); repeated && (ok || was.Call != call.id) {
		call.stepOut(tx)
		return q.repeat(tx, call, was)
	}
	switch {
	case ok:
		return []Claimed{given}, nil
	case call.stands(tx) && !last:
		return nil, errWaiting
	}
	// It is its first look, or its last, or what it was handed was taken away
	// before it looked.
	call.stepOut(tx)
	tasks := q.claimUp(tx, call)
	switch {
	case len(tasks) > 0:
		if call.RequestID != "" {
			remember(tx, call.Holder.Session, call.RequestID, request{
				Call: call.id, Queues: call.Queues, Count: call.Count, TTL: call.TTL, Tasks: grantsOf(tasks...),
			})
		}
		return tasks, nil
	case last:
		return nil, nil
	}
	if err := q.standInLine(tx, call); err != nil {
		return nil, err
	}
	return nil, errWaiting
}

// withdraw undoes the claim of a caller that is gone: its tasks are where they
// stood, and no execution has begun. What its request was given by another
// call, or has told to one, is not its to undo.
func (q *Queue) withdraw(ctx context.Context, call *claimCall, tasks []Claimed) error {
	err := q.update(context.WithoutCancel(ctx), func(tx *ledger) error {
		call.stepOut(tx)
		mine := grantsOf(tasks...)
		if c, ok := q.given(tx, call); ok {
			mine = append(mine, grantsOf(c)...)
		}
		if call.RequestID != "" {
			was, ok := getRequest(tx, call.Holder.Session, call.RequestID)
			if !ok || was.Call != call.id || was.Shared {
				return nil
			}
			tx.Delete(claimKey(call.Holder.Session, call.RequestID))
			mine = was.Tasks
		}
		for _, g := range mine {
			if c, ok := q.standing(tx, g, call.Holder.Session); ok {
				q.undo(tx, &c.Task)
			}
		}
		return nil
	})
	return cmp.Or(err, context.Cause(ctx))
}

func (c Claim) check() error {
	if len(c.Queues) < 1 || len(c.Queues) > MaxQueues {
		return argumentError("queues", "must name 1 to %d queues", MaxQueues)
	}
	for _, name := range c.Queues {
		if err := CheckName("queues", name); err != nil {
			return err
		}
	}
	switch {
	case c.TTL < registry.MinTTL || c.TTL > registry.MaxTTL:
		return argumentError("ttl_secs", "must be from %d to %d", registry.MinTTL/time.Second, registry.MaxTTL/time.Second)
	case c.Wait < 0 || c.Wait > registry.MaxWait:
		return argumentError("wait_secs", "must be from 0 to %d", registry.MaxWait/time.Second)
	case c.Count < 1 || c.Count > MaxCount:
		return argumentError("count", "must be from 1 to %d", MaxCount)
	case len(c.RequestID) > registry.MaxRequestID:
		return argumentError("request_id", "must be at most %d bytes", registry.MaxRequestID)
	}
	return nil
}

// EndSession forgets what the session waits for and asked for. Its claims are
// leases, and end with those. It is part of the transaction that ends the
// session.
func (q *Queue) EndSession(tx Tx, session uuid.UUID) {
	for row := range tx.Owned(session) {
		if strings.HasPrefix(row.Key, claimantPrefix) || strings.HasPrefix(row.Key, givenPrefix) || strings.HasPrefix(row.Key, claimPrefix) {
			tx.Delete(row.Key)
		}
	}
}
