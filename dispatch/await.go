package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/registry"
)

// Kinds of the recorded answers of Cancel, which is the id of the actor, and of
// Report.
const (
	cancelling call.Kind = "cancel"
	reporting  call.Kind = "report"
)

// An Outcome is the current state of an actor, with its report.
type Outcome struct {
	ActorInfo
	Result json.RawMessage // nil: no report yet
}

// Finished reports whether the actor has ended or its current work is final.
func (i ActorInfo) Finished() bool {
	return i.Ended() || i.Work != nil && i.Work.Status.Final()
}

// Status returns the session's own actor or one in its sub-tree. ref is a name
// in the session's layer, a path or an id.
func (se *Session) Status(ctx context.Context, ref string) (o Outcome, err error) {
	return o, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		a, err := find(tx, se.actor, ref)
		if err != nil {
			return err
		}
		o = se.state.outcome(tx, a, se.actor)
		return nil
	})
}

// outcome describes an actor as viewer sees it. It reads all that the actor
// holds, so tx is a snapshot.
func (s *State) outcome(tx engine.Tx, a, viewer Actor) Outcome {
	return Outcome{s.info(tx, a, viewer), work.Result(tx, a.ID)}
}

// outcomeNow returns the outcome of an actor that a transaction has found. If
// the actor is forgotten by now, it is described as it was.
func (s *State) outcomeNow(ctx context.Context, a, viewer Actor) (o Outcome, err error) {
	return o, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		if now, ok := getActor(tx, a.ID); ok {
			a = now
		}
		o = s.outcome(tx, a, viewer)
		return nil
	})
}

// Await returns the actors that refs name as soon as one of them is finished,
// or all of them if all is set. When wait is over it returns their current
// states. party is the agent of the session that waits.
func (se *Session) Await(ctx context.Context, party string, refs []string, all bool, wait time.Duration) (list []Outcome, done bool, err error) {
	if err := registry.CheckWait(wait); err != nil {
		return nil, false, err
	}
	if !se.actor.Role.Leads() {
		return nil, false, forbidden("%s is a %s and leads nobody it could wait for; kv_wait and task_result wait for what others do", se.actor.Path, se.actor.Role)
	}
	ids, layers, err := se.awaited(ctx, refs)
	if err != nil {
		return nil, false, err
	}
	ctx, stop := se.WithinWait(ctx, party, wait)
	defer stop()
	if wait > 0 {
		if list, done, err = se.look(ctx, ids, all); done || err != nil {
			return list, done, err
		}
		over, err := se.noteAwait(ctx, party, list, all)
		if err != nil {
			return nil, false, err
		}
		defer over()
	}
	var layersChange engine.Hub // joins watches of several rows: the end of a member changes its layer's row
	watch := layersChange.Watch(anyLayer)
	for _, id := range layers {
		one := se.state.eng.Watch(layerKey(id))
		defer one.Stop()
		go forward(ctx, one, &layersChange) // ends with ctx when this call returns
	}
	err = engine.Await(ctx, watch, wait, func(last bool) (err error) {
		list, done, err = se.look(ctx, ids, all)
		if err == nil && !done && !last {
			return engine.ErrWait
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return list, done, nil
}

// noteAwait records which actors a party of the session waits for. The deadlock check
// then refuses a wait of theirs for this party. The caller calls over when the
// wait ends.
func (se *Session) noteAwait(ctx context.Context, party string, list []Outcome, all bool) (over func(), err error) {
	var ids []uuid.UUID
	var paths []string
	for _, o := range list {
		if !o.Finished() {
			ids, paths = append(ids, o.ID), append(paths, o.Path)
		}
	}
	return se.state.core.AwaitActors(ctx, se.As(party), ids, paths, all)
}

// anyLayer is the key that a wait for members of several layers watches.
const anyLayer = "layer"

func forward(ctx context.Context, from *engine.Watch, to *engine.Hub) {
	for {
		select {
		case <-from.C:
			to.Notify(anyLayer)
		case <-ctx.Done():
			return
		}
	}
}

// awaited resolves refs to the ids of actors, and also returns the layers that
// they are in.
func (se *Session) awaited(ctx context.Context, refs []string) (ids, layers []uuid.UUID, err error) {
	seen := make(map[uuid.UUID]bool)
	return ids, layers, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		ids, layers = nil, nil
		for _, ref := range refs {
			a, err := find(tx, se.actor, ref)
			if err != nil {
				return err
			}
			if a.ID == se.actor.ID {
				return &registry.ArgumentError{Argument: "actors", Problem: "must not name yourself"}
			}
			if !seen[a.ID] {
				seen[a.ID] = true
				ids = append(ids, a.ID)
			}
			if !seen[a.Layer] {
				seen[a.Layer] = true
				layers = append(layers, a.Layer)
			}
		}
		return nil
	})
}

func (se *Session) look(ctx context.Context, ids []uuid.UUID, all bool) (list []Outcome, done bool, err error) {
	return list, done, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		list = list[:0]
		finished := 0
		for _, id := range ids {
			a, ok := getActor(tx, id)
			if !ok {
				return say(ErrNotFound, "actor %s has left: it had joined the run by itself", id)
			}
			o := se.state.outcome(tx, a, se.actor)
			if o.Finished() {
				finished++
			}
			list = append(list, o)
		}
		done = finished == len(ids) || finished > 0 && !all
		return nil
	})
}

// find resolves ref to an actor in the sub-tree of a.
func find(tx engine.Tx, a Actor, ref string) (Actor, error) {
	ref = PathOf(ref)
	unknown := say(ErrNotFound, "no actor %q in your sub-tree; call actor_list to see who is there", ref)
	var m Actor
	var ok bool
	if id, err := uuid.Parse(ref); err == nil && len(ref) == 36 {
		m, ok = getActor(tx, id)
	} else if ref == a.Path {
		return getActorOr(tx, a)
	} else if a.Role.Leads() {
		if m, ok = memberNamed(tx, a.Leads, ref); ok {
			return m, nil
		}
		run, _ := getRun(tx, a.Run)
		m, ok = getActor(tx, run.Root)
		for name := range strings.SplitSeq(ref, Separator) {
			if ok {
				m, ok = memberNamed(tx, m.Leads, name)
			}
		}
	}
	if !ok || !within(a, m) {
		return Actor{}, unknown
	}
	return m, nil
}

func getActorOr(tx engine.Tx, a Actor) (Actor, error) {
	now, ok := getActor(tx, a.ID)
	if !ok {
		return Actor{}, say(ErrNotFound, "actor %s has left", a.Path)
	}
	return now, nil
}

// within reports whether m is a or in the sub-tree of a.
func within(a, m Actor) bool {
	switch {
	case m.Run != a.Run:
		return false
	case m.ID == a.ID || a.Role == Root:
		return true
	default:
		return a.Role.Leads() && strings.HasPrefix(m.Path, a.Path+Separator)
	}
}

// Cancel ends an actor below the session's own, and its whole sub-tree. An
// actor that has a process is told to stop, and ends when its process ends. An
// actor that is already finished does not change. A call that is sent again
// ends nobody else, although another actor may have the name by then.
func (se *Session) Cancel(ctx context.Context, ref, reason string) (o Outcome, err error) {
	if !se.actor.Role.Leads() {
		return Outcome{}, forbidden("%s is a %s and leads nobody it could cancel; end your own work with actor_report and exit", se.actor.Path, se.actor.Role)
	}
	s, c := se.state, call.Of(ctx)
	var a Actor
	err = s.ending(ctx, func(e *ender) error {
		value, again, err := c.Answered(e.tx, cancelling)
		if err != nil {
			return err
		}
		if again {
			id, _ := uuid.FromBytes([]byte(value))
			var ok bool
			if a, ok = getActor(e.tx, id); !ok {
				return say(ErrNotFound, "actor %s was cancelled, and its record has been deleted since", ref)
			}
			return nil
		}
		if a, err = find(e.tx, se.actor, ref); err != nil {
			return err
		}
		if a.ID == se.actor.ID {
			return &registry.ArgumentError{Argument: "actor", Problem: "must not name yourself: report what you have with actor_report, and exit"}
		}
		if !a.Ended() {
			e.stop(a, end{Cause: "cancelled: " + reason, By: se.actor.Path, Stop: work.Stop{Reason: reason, Status: work.Cancelled}})
			if now, ok := getActor(e.tx, a.ID); ok {
				a = now
			}
		}
		c.Record(e.tx, cancelling, string(a.ID[:]), 0)
		return nil
	})
	if err != nil {
		return Outcome{}, err
	}
	return s.outcomeNow(ctx, a, se.actor)
}

// Report stores the result of the session's actor for the callers of Await. A
// later report replaces an earlier one. A call that is sent again does not.
func (se *Session) Report(ctx context.Context, result json.RawMessage) error {
	if se.actor.Role.Outside() {
		return forbidden("an operator is in no tree and has nobody to report to")
	}
	var text bytes.Buffer
	if err := json.Compact(&text, result); err != nil {
		return &registry.ArgumentError{Argument: "result", Problem: "must be JSON"}
	}
	if text.Len() > work.MaxResult {
		return &registry.LimitError{Which: "bytes in a result", Max: work.MaxResult, TooLarge: true}
	}
	c := call.Of(ctx)
	return rows.Update(ctx, se.state.eng, func(tx engine.Tx) error {
		if !sessionOpen(tx, se.id) {
			return registry.ErrSessionEnded
		}
		if _, again, err := c.Answered(tx, reporting); again || err != nil {
			return err
		}
		work.PutResult(tx, se.actor.ID, text.String())
		c.Record(tx, reporting, "", 0)
		return nil
	})
}
