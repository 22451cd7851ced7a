package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Default retention of the events of each run.
const (
	KeepEvents      = 7 * 24 * time.Hour
	KeepEventsCount = 100_000
)

// note records an event of an actor.
func note(tx engine.Tx, run Run, a Actor, e event.Event) {
	e.Actor, e.Path = a.ID, a.Path
	event.Record(tx, run.ID, e)
}

// noteSession records an event of a session of an actor.
func noteSession(tx engine.Tx, a Actor, session uuid.UUID, kind event.Kind, cause string) {
	run, _ := getRun(tx, a.Run)
	note(tx, run, a, event.Event{Kind: kind, Key: session.String(), Cause: cause})
}

// place is the run of a layer, and the path of its lead.
type place struct {
	run  uuid.UUID
	path string
}

// layerOf returns the run and the path that events of a layer's leases are
// recorded under. The result never changes and is needed for each event, so it
// is cached.
func (s *State) layerOf(tx registry.Tx, scope string) (run uuid.UUID, path string) {
	if p, ok := s.places.Load(scope); ok {
		return p.(place).run, p.(place).path
	}
	id, err := uuid.Parse(scope[min(len(scope), len(layerScope(uuid.Nil))-36):])
	l, ok := getLayer(tx, id)
	if err != nil || !ok {
		return uuid.Nil, ""
	}
	s.places.Store(scope, place{l.RunID, l.Path})
	return l.RunID, l.Path
}

// NoteRefused records a refused write of an agent of the session, if err says that a lease
// or a claim that the write needed was no longer valid. The refusal has changed
// nothing, so the event gets its own commit.
func (se *Session) NoteRefused(ctx context.Context, agent, write string, err error) error {
	e := event.Event{Kind: event.WriteRefused, Party: agent, Cause: write + ": the token is stale"}
	var lease *registry.StaleError
	var claim *queue.StaleError
	switch {
	case errors.As(err, &lease):
		e.Key, e.Token = lease.Key, lease.Token
		if lease.Current {
			e.Cause = write + ": the lease is past its deadline"
		} else if lease.Held {
			e.By = lease.Lease.Holder.Path
		}
	case errors.As(err, &claim):
		e.Queue, e.Key, e.Token = claim.Task.Queue, claim.Task.ID.String(), claim.Token
		if n := len(claim.Task.Attempts); n > 0 && claim.Task.State == queue.InProgress {
			e.By = claim.Task.Attempts[n-1].Path
		}
	default:
		return nil
	}
	return se.noteAlone(ctx, func(tx engine.Tx) event.Event {
		if lease != nil {
			if scope, _ := scopeOf(lease.Scope); scope == LayerScope {
				_, e.Layer = se.state.layerOf(tx, lease.Scope)
			}
		}
		return e
	})
}

// NoteOverruled records that a client of the session writes to a file that
// another party has leased, because the guard is set to refuse nothing.
func (se *Session) NoteOverruled(ctx context.Context, party, reason string, held *registry.HeldError) error {
	return se.noteAlone(ctx, func(engine.Tx) event.Event {
		return event.Event{Kind: event.WriteOverruled, Key: held.Key, Party: party, By: held.Holder.Path, Reason: reason}
	})
}

// noteAlone records an event in a commit of its own.
func (se *Session) noteAlone(ctx context.Context, what func(tx engine.Tx) event.Event) error {
	ctx = context.WithoutCancel(ctx)
	if se.Holder().Local {
		ctx = engine.Local(ctx)
	}
	return se.state.eng.Update(ctx, func(tx engine.Tx) error {
		note(tx, se.run, se.actor, what(tx))
		return nil
	})
}

// tendEvents deletes events whose retention is over, and the events of runs
// that have been removed.
func (s *State) tendEvents(ctx context.Context) error {
	keeper := event.Keeper{Retention: s.opts.Keep.Events}
	marked, removals := s.eng.Watch(event.MarkKey), s.eng.Watch(removalsUnder)
	defer marked.Stop()
	defer removals.Stop()
	tick := time.NewTicker(retirePoll)
	defer tick.Stop()
	for {
		runs := make(map[uuid.UUID]bool) // cache of the runs that exist
		keeper.Exists = func(tx engine.Tx, run uuid.UUID) bool {
			if !runs[run] {
				for row := range tx.Scan(runPrefix) {
					r, _ := rows.Decode[Run](tx, row)
					runs[r.ID] = true
				}
			}
			return runs[run]
		}
		if err := keeper.Keep(ctx, s.eng); err != nil {
			return err
		}
		select {
		case <-marked.C:
		case <-removals.C:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// An EventQuery asks for events of a run.
type EventQuery struct {
	Since uint64        // only later ones; 0: from the oldest that is kept
	Back  uint64        // if Since is 0: begin at most this many revisions (of all runs) before the last
	Wait  time.Duration // how long to wait if there are none; at most registry.MaxWait
	Limit int           // 1 to MaxEventList; 0: MaxEventList

	Key   string // only of this lease or task
	Scope Scope  // with Key: only of this scope ("": any); for LayerScope also of the layer of Layer
	Layer string
	Actor string // only by or about the actor at this path
}

// Limits of a page of events.
const (
	MaxEventList  = 500
	MaxEventBytes = 64 << 10 // approximate

	maxEventsRead = 20_000
	eventOverhead = 260 // bytes of an event as JSON, without its texts
)

// An EventPage is a part of the events of a run.
type EventPage struct {
	Events []event.Event
	Next   uint64 // Since for the next page
	More   bool   // there may be more events now
}

// RunEvents returns events of a run in order. If there are none, it waits for
// one. It returns an [event.CompactedError] if some of the requested events
// have been deleted, and a [registry.ArgumentError] if q.Since is beyond the last
// revision, as when it comes from another state.
func (s *State) RunEvents(ctx context.Context, name string, q EventQuery) (p EventPage, err error) {
	q.Limit = cmp.Or(q.Limit, MaxEventList)
	if q.Limit < 1 || q.Limit > MaxEventList {
		return EventPage{}, &registry.ArgumentError{Argument: "limit", Problem: fmt.Sprintf("must be from 1 to %d", MaxEventList)}
	}
	if err := registry.CheckWait(q.Wait); err != nil {
		return EventPage{}, err
	}
	q.Layer, q.Actor = PathOf(q.Layer), PathOf(q.Actor)
	watch := s.eng.Watch(event.NumberKey)
	defer watch.Stop()
	err = engine.Await(ctx, watch, q.Wait, func(last bool) error {
		err := rows.Snapshot(ctx, s.eng, func(tx engine.Tx) (err error) {
			run, ok := getRun(tx, name)
			if !ok {
				return notFound("run %q", name)
			}
			p, err = q.page(ctx, tx, run)
			return err
		})
		q.Since = max(q.Since, p.Next) // do not read the same events again
		if err == nil && len(p.Events) == 0 && !last {
			return engine.ErrWait
		}
		return err
	})
	if err != nil {
		return EventPage{}, err
	}
	return p, nil
}

// History is [State.RunEvents] for a lease in one of the session's own scopes.
// It fills in q.Layer.
func (se *Session) History(ctx context.Context, q EventQuery) (EventPage, error) {
	if _, err := se.registry(q.Scope); err != nil {
		return EventPage{}, err
	}
	if q.Scope == LayerScope {
		err := rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
			l, _ := getLayer(tx, se.actor.homeLayer())
			q.Layer = l.Path
			return nil
		})
		if err != nil {
			return EventPage{}, err
		}
	}
	return se.state.RunEvents(ctx, se.run.Name, q)
}

func (q *EventQuery) page(ctx context.Context, tx engine.Tx, run Run) (p EventPage, err error) {
	switch last := event.NumbersOf(tx).Revision; {
	case q.Since > last: // of another state: the reader would miss all events up to it
		return EventPage{}, &registry.ArgumentError{Argument: "since", Problem: fmt.Sprintf("must be at most %d, the last revision", last)}
	case q.Since == 0 && 0 < q.Back && q.Back < last:
		q.Since = max(last-q.Back, event.Compacted(tx, run.ID))
	}
	events, err := event.Read(tx, run.ID, q.Since)
	if err != nil {
		return EventPage{}, err
	}
	p.Next = q.Since
	read, size := 0, 0
	for e := range events {
		if size += eventOverhead + e.Size(); read == maxEventsRead || len(p.Events) == q.Limit || len(p.Events) > 0 && size > MaxEventBytes {
			p.More = true
			return p, ctx.Err()
		}
		read++
		p.Next = e.Revision
		if q.wants(&e) {
			p.Events = append(p.Events, e)
		} else {
			size -= eventOverhead + e.Size()
		}
	}
	p.Next = max(p.Next, event.NumbersOf(tx).Revision)
	return p, ctx.Err()
}

func (q *EventQuery) wants(e *event.Event) bool {
	switch {
	case q.Key != "" && q.Key != e.Key:
		return false
	case q.Scope == RunScope && e.Layer != "", q.Scope == LayerScope && e.Layer != q.Layer:
		return false
	default:
		return q.Actor == "" || q.Actor == e.Path || q.Actor == e.By
	}
}
