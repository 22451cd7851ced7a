package dispatch

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// work ends a launched actor: its work becomes final, its sessions end, and the
// launched actors below it are told to stop. Those keep their sessions until
// their own processes are gone.
func (e *ender) work(run Run, a Actor, exit work.Exit) {
	held, lost := e.s.leasesAtExit(e.tx, a.ID)
	work.Conclude(e.tx, run.Name, a.ID, exit, held, lost)
	cause := string(exit.Status)
	if exit.Cause != "" {
		cause += ": " + work.Cut(exit.Cause)
	}
	e.actor(a, end{Cause: cause})
	reason := fmt.Sprintf("its lead %s ended", a.Path)
	e.below(a, end{Cause: cause, By: a.Path, Stop: work.Stop{Reason: reason, Status: work.Cancelled}})
}

// leasesAtExit returns the leases that the actor holds and those that it has
// lost, at most work.MaxLeaseNames of each.
func (s *State) leasesAtExit(tx engine.Tx, actor uuid.UUID) (held, lost []work.LeaseName) {
	held = s.heldBy(tx, actor, "", LayerScope, RunScope)
	for l := range s.core.LostBy(tx, actor) {
		if len(lost) == work.MaxLeaseNames {
			break
		}
		if scope, ok := scopeOf(l.Scope); ok {
			lost = append(lost, work.LeaseName{Scope: string(scope), Key: l.Key, Reason: l.Reason})
		}
	}
	return held, lost
}

// heldBy returns what an actor holds in some scopes, one scope after the other, at most
// work.MaxLeaseNames. reason says why it loses that, if it does.
func (s *State) heldBy(tx engine.Tx, actor uuid.UUID, reason string, scopes ...Scope) (held []work.LeaseName) {
	for _, scope := range scopes {
		for se := range sessionsOf(tx, actor) {
			for _, l := range s.core.HoldsIn(tx, se.ID, string(scope), work.MaxLeaseNames-len(held)) {
				held = append(held, work.LeaseName{Scope: string(scope), Key: l.Key, Reason: reason})
			}
		}
	}
	return held
}

// MaxResults is the greatest number of results in one answer.
const MaxResults = 64

// RunResults returns the results of those of the actors that have reported one.
// se must be the launcher of the run.
func (s *State) RunResults(ctx context.Context, se *Session, name string, actors []uuid.UUID) (results map[uuid.UUID]json.RawMessage, err error) {
	l, err := s.dispatcherOf(se, name)
	if err != nil {
		return nil, err
	}
	if len(actors) > MaxResults {
		return nil, &registry.ArgumentError{Argument: "actors", Problem: fmt.Sprintf("must be at most %d", MaxResults)}
	}
	return results, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		results = make(map[uuid.UUID]json.RawMessage, len(actors))
		for _, id := range actors {
			if _, _, err := workIn(tx, l, id); err != nil {
				return err
			}
			if result := work.Result(tx, id); result != nil {
				results[id] = result
			}
		}
		return nil
	})
}

// FinishRun ends a run whose works are all final: it ends the root and every
// actor still in the tree. The run can be resumed until another run takes its
// name. Read the reports of its actors before: see [State.RunResults].
func (s *State) FinishRun(ctx context.Context, se *Session, name string) (summary RunInfo, err error) {
	l, err := s.dispatcherOf(se, name)
	if err != nil {
		return RunInfo{}, err
	}
	err = s.ending(ctx, func(e *ender) error {
		run, _ := getRun(e.tx, name)
		d, _ := work.RunOf(e.tx, name)
		if d.Unfinished > 0 {
			return forbidden("run %q has %d actors that are not finished: report their exits, or drain it with stop", name, d.Unfinished)
		}
		root, _ := getActor(e.tx, run.Root)
		s.endRun(e.tx, name)
		e.stop(root, end{Cause: "the run is finished", Stop: work.Stop{Reason: "the run is finished", Status: work.Cancelled}})
		return nil
	})
	if err != nil {
		return RunInfo{}, err
	}
	s.launchers.Forget(l)
	return s.runNow(ctx, name)
}

// runNow describes a dispatched run with all its actors, which are many.
func (s *State) runNow(ctx context.Context, name string) (info RunInfo, err error) {
	return info, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		run, _ := getRun(tx, name)
		d, _ := work.RunOf(tx, name)
		root, _ := getActor(tx, run.Root)
		info = RunInfo{Run: run, Dispatched: &d, Actors: s.tree(ctx, tx, root)}
		return context.Cause(ctx)
	})
}

// DrainRun stops all spawning in the run and notifies its agents. If stop is
// set, it also stops all of them.
func (s *State) DrainRun(ctx context.Context, se *Session, name, reason string, stop bool) (left int, err error) {
	if _, err := s.dispatcherOf(se, name); err != nil {
		return 0, err
	}
	var drain *work.Drain // nil: the run was already draining
	for more := true; more; {
		more = false
		err = s.ending(ctx, func(e *ender) error {
			run, _ := getRun(e.tx, name)
			work.AmendRun(e.tx, name, func(d *work.Dispatched) {
				if d.Drain == nil {
					d.Drain = &work.Drain{Reason: reason, At: e.tx.Wall()}
					drain = d.Drain
				}
			})
			if stop {
				more = e.stopUnfinished(run, end{Cause: "cancelled: " + reason, By: operatorPath, Stop: work.Stop{Reason: reason, Status: work.Cancelled}})
			}
			d, _ := work.RunOf(e.tx, name)
			left = d.Unfinished
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	if drain != nil {
		s.tellDrain(name, drain)
	}
	return left, nil
}

// stopUnfinished stops actors of a run whose works are not final, up to the
// limit of a transaction. It returns true if more are left.
func (e *ender) stopUnfinished(run Run, why end) (more bool) {
	for id, todo := range work.Unfinished(e.tx, run.ID) {
		if todo == work.ToStop {
			continue
		}
		if e.left <= 0 {
			return true
		}
		e.left--
		if a, ok := getActor(e.tx, id); ok && work.Halt(e.tx, run.Name, id, why.Stop) {
			e.actor(a, why)
		}
	}
	return false
}

// tellDrain notifies each agent of a run, with its next answer. With nil, the run does
// not end any more.
func (s *State) tellDrain(run string, drain *work.Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parties {
		if p.actor.Run == run {
			p.agents.forgetDrain()
			p.drain.Store(drain)
		}
	}
}
