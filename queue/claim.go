package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	call := claimCall{Claim: c, id: uuid.New()}
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
	for i := range tasks {
		row, ok, err := q.eng.Get(context.WithoutCancel(ctx), payloadKey(tasks[i].ID))
		if err != nil {
			return nil, err
		}
		if ok {
			tasks[i].Payload = []byte(row.Value)
		}
	}
	return tasks, nil
}

// A claimCall is one claim on its way.
type claimCall struct {
	Claim
	id    uuid.UUID
	lines []line
}

func (q *Queue) claim(ctx context.Context, call *claimCall) (tasks []Claimed, err error) {
	if call.Wait == 0 {
		return q.attempt(ctx, call, false)
	}
	// As with a lease: the watch stands before the first look, and the call
	// is known as asking before it has a place.
	watch := q.eng.Watch(givenKey(call.id))
	defer watch.Stop()
	defer q.core.Answering(ctx, call.id)()
	timeout := time.NewTimer(call.Wait)
	defer timeout.Stop()

	tasks, err = q.attempt(ctx, call, true)
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

// attempt claims what is ready, or if there is nothing takes a place in line.
func (q *Queue) attempt(ctx context.Context, call *claimCall, wait bool) (tasks []Claimed, err error) {
	return tasks, q.update(ctx, func(tx Tx) error {
		if !q.core.Open(tx, call.Holder.Session) {
			return registry.ErrSessionEnded
		}
		if row, ok := tx.Get(claimKey(call.Holder.Session, call.RequestID)); ok && call.RequestID != "" {
			tasks, err = q.repeat(tx, call, decodeJSON[claimRecord](row))
			return err
		}
		tasks = q.claimUp(tx, call.lines, call.Holder, call.TTL, call.Count)
		if len(tasks) > 0 {
			q.remember(tx, call, tasks)
			return nil
		}
		if !wait {
			return nil
		}
		q.claimant(call, nextPlace(tx)).put(tx)
		return errWaiting
	})
}

func (q *Queue) claimant(call *claimCall, place uint64) claimant {
	c := claimant{Claim: call.id, Place: place, Holder: call.Holder, TTL: call.TTL}
	for _, l := range call.lines {
		c.Lines = append(c.Lines, []byte(l))
	}
	return c
}

// look takes what a hand-over has given; last means that the wait is over.
func (q *Queue) look(ctx context.Context, call *claimCall, last bool) (tasks []Claimed, err error) {
	return tasks, q.update(ctx, func(tx Tx) error {
		if !q.core.Open(tx, call.Holder.Session) {
			return registry.ErrSessionEnded
		}
		if t, lease, ok := q.given(tx, call.id); ok {
			tasks = []Claimed{{Task: t, Token: lease.Token, Deadline: lease.Deadline}}
			q.remember(tx, call, tasks)
			return nil
		}
		if !last {
			return errWaiting
		}
		q.stepOut(tx, call)
		return nil
	})
}

// given takes what was given to a call, if it is still its.
func (q *Queue) given(tx Tx, claim uuid.UUID) (Task, registry.Lease, bool) {
	row, ok := tx.Get(givenKey(claim))
	if !ok {
		return Task{}, registry.Lease{}, false
	}
	tx.Delete(row.Key)
	id := uuid.UUID([]byte(row.Value))
	t, ok := getTask(tx, id)
	lease, held := q.leases.Get(tx, id.String())
	return t, lease, ok && held && lease.Holder.Session == row.Owner
}

// stepOut gives up the call's places.
func (q *Queue) stepOut(tx Tx, call *claimCall) {
	for _, l := range call.lines {
		for c := range claimants(tx, l) {
			if c.Claim == call.id {
				c.remove(tx)
			}
		}
	}
}

// withdraw undoes the claim of a caller that is gone: its tasks are ready
// again, and no execution has begun.
func (q *Queue) withdraw(ctx context.Context, call *claimCall, tasks []Claimed) error {
	err := q.update(context.WithoutCancel(ctx), func(tx Tx) error {
		q.stepOut(tx, call)
		if t, lease, ok := q.given(tx, call.id); ok {
			tasks = append(tasks, Claimed{Task: t, Token: lease.Token})
		}
		for _, c := range tasks {
			lease, ok := q.leases.Get(tx, c.ID.String())
			if !ok || lease.Token != c.Token {
				continue
			}
			t, _ := getTask(tx, c.ID)
			q.leases.Free(tx, lease, registry.Released)
			q.leave(tx, t)
			t.Attempt--
			t.Attempts = t.Attempts[:len(t.Attempts)-1]
			q.place(tx, t, time.Time{})
		}
		if call.RequestID != "" {
			tx.Delete(claimKey(call.Holder.Session, call.RequestID))
		}
		return nil
	})
	return cmp.Or(err, context.Cause(ctx))
}

// A claimRecord is what an idempotent claim was and was given.
type claimRecord struct {
	Queues []string
	Count  int
	TTL    time.Duration
	Tasks  []claimedRecord
}

type claimedRecord struct {
	ID    uuid.UUID
	Token uint64
}

// keepClaim is how long a claim's request_id is remembered.
const keepClaim = time.Hour

func (q *Queue) remember(tx Tx, call *claimCall, tasks []Claimed) {
	if call.RequestID == "" {
		return
	}
	r := claimRecord{Queues: call.Queues, Count: call.Count, TTL: call.TTL}
	for _, t := range tasks {
		r.Tasks = append(r.Tasks, claimedRecord{t.ID, t.Token})
	}
	tx.Put(engine.Row{
		Key: claimKey(call.Holder.Session, call.RequestID), Value: encodeJSON(r),
		Owner: call.Holder.Session, Due: tx.Now().Add(keepClaim),
	})
}

// repeat answers a request_id that was used before: with what of it is still
// the session's, so that an answer that was lost locks no task.
func (q *Queue) repeat(tx Tx, call *claimCall, was claimRecord) (tasks []Claimed, err error) {
	if !slices.Equal(was.Queues, call.Queues) || was.Count != call.Count || was.TTL != call.TTL {
		return nil, registry.ErrRequestIDReused
	}
	for _, r := range was.Tasks {
		lease, ok := q.leases.Get(tx, r.ID.String())
		if !ok || lease.Token != r.Token || lease.Holder.Session != call.Holder.Session {
			continue
		}
		if t, ok := getTask(tx, r.ID); ok {
			tasks = append(tasks, Claimed{Task: t, Token: r.Token, Deadline: lease.Deadline})
		}
	}
	return tasks, nil
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
		if hasPrefix(row.Key, claimantPrefix) || hasPrefix(row.Key, givenPrefix) || hasPrefix(row.Key, claimPrefix) {
			tx.Delete(row.Key)
		}
	}
}
