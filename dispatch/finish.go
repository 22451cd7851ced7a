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

// endWork ends a launched actor: its work is final, its sessions end, and
// whoever is launched below it is told to stop. They keep their sessions until
// their own processes are gone.
func (s *State) endWork(tx engine.Tx, run Run, a Actor, e work.Exit) (sessions []uuid.UUID) {
	held, lost := s.leasesAtExit(tx, run, a)
	work.Conclude(tx, run.Name, a.ID, e, held, lost)
	list := []Actor{a}
	for _, m := range below(tx, a, nil) {
		if work.Halt(tx, run.Name, m.ID, work.Stop{Reason: fmt.Sprintf("its lead %s ended", a.Path), Status: work.Cancelled}) {
			list = append(list, m)
		}
	}
	cause := string(e.Status)
	if e.Cause != "" {
		cause += ": " + work.Cut(e.Cause)
	}
	return s.endActors(tx, list, cause)
}

// stopTree tells a and all below it to stop, and returns those that can end at
// once.
func (s *State) stopTree(tx engine.Tx, run Run, a Actor, stop work.Stop) (now []Actor) {
	for _, m := range append([]Actor{a}, below(tx, a, nil)...) {
		if !m.Ended() && work.Halt(tx, run.Name, m.ID, stop) {
			now = append(now, m)
		}
	}
	return now
}

// leasesAtExit are the first of the leases that the actor holds, and of those
// it has lost.
func (s *State) leasesAtExit(tx engine.Tx, run Run, a Actor) (held, lost []work.LeaseName) {
	scope := func(of string) (Scope, bool) {
		switch of {
		case run.scope():
			return RunScope, true
		case layerScope(a.HomeLayer()):
			return LayerScope, true
		}
		return "", false // a claim on a task
	}
	for se := range sessionsOf(tx, a.ID) {
		leases, _ := s.core.Stands(tx, se.ID)
		for _, l := range leases {
			if of, ok := scope(l.Scope); ok && len(held) < work.MaxLeaseNames {
				held = append(held, work.LeaseName{Scope: string(of), Key: l.Key})
			}
		}
	}
	for _, l := range s.core.LostBy(tx, a.ID) {
		if of, ok := scope(l.Scope); ok && len(lost) < work.MaxLeaseNames {
			lost = append(lost, work.LeaseName{Scope: string(of), Key: l.Key, Reason: l.Reason})
		}
	}
	return held, lost
}

// MaxResults is how many results are told in one answer.
const MaxResults = 64

// RunResults are the results of actors of a run, of those that have any. The
// run is se's: it is its launcher.
func (s *State) RunResults(ctx context.Context, se *Session, name string, actors []uuid.UUID) (results map[uuid.UUID]json.RawMessage, err error) {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return nil, err
	}
	if len(actors) > MaxResults {
		return nil, &registry.ArgumentError{Argument: "actors", Problem: fmt.Sprintf("must be at most %d", MaxResults)}
	}
	return results, rows.View(ctx, s.eng, func(tx engine.Tx) error {
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

// FinishRun ends a run whose works are all final, and with it its root and
// whoever is left in its tree. It can be resumed until a run takes its name.
// What its actors reported is asked for before: see [State.RunResults].
func (s *State) FinishRun(ctx context.Context, se *Session, name string) (summary RunInfo, err error) {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return RunInfo{}, err
	}
	var ended []uuid.UUID
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		run, _ := getRun(tx, name)
		d, _ := work.RunOf(tx, name)
		if d.Unfinished > 0 {
			return forbidden("run %q has %d actors that are not finished: report their exits, or drain it with stop", name, d.Unfinished)
		}
		root, _ := getActor(tx, run.Root)
		var list []Actor
		for _, a := range append([]Actor{root}, below(tx, root, nil)...) {
			if !a.Ended() {
				list = append(list, a)
			}
		}
		ended = s.endActors(tx, list, "the run is finished")
		endRun(tx, name)
		run, _ = getRun(tx, name)
		root, _ = getActor(tx, run.Root)
		summary = RunInfo{run, &d, s.tree(tx, root, nil)}
		return nil
	})
	if err != nil {
		return RunInfo{}, err
	}
	s.cutOff(ended, fmt.Errorf("run %s is finished", name))
	s.launchers.Forget(l)
	return summary, nil
}

// DrainRun lets nobody in the run spawn any more, and has its agents told.
// With stop all of them are stopped.
func (s *State) DrainRun(ctx context.Context, se *Session, name, reason string, stop bool) (left int, err error) {
	if _, err := s.launcherOf(se, name); err != nil {
		return 0, err
	}
	var ended []uuid.UUID
	var drain *work.Drain // nil: all have been told
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		run, _ := getRun(tx, name)
		work.AmendRun(tx, name, func(d *work.Dispatched) {
			if d.Drain == nil {
				d.Drain = &work.Drain{Reason: reason, At: tx.Wall()}
				drain = d.Drain
			}
		})
		if stop {
			var list []Actor
			for id := range work.Unfinished(tx, run.ID) {
				a, _ := getActor(tx, id)
				if work.Halt(tx, run.Name, a.ID, work.Stop{Reason: reason, Status: work.Cancelled}) {
					list = append(list, a)
				}
			}
			ended = s.endActors(tx, list, "cancelled: "+reason)
		}
		d, _ := work.RunOf(tx, name)
		left = d.Unfinished
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.cutOff(ended, fmt.Errorf("run %s ends: %s", name, reason))
	if drain != nil {
		s.tellDrain(name, drain)
	}
	return left, nil
}

// tellDrain has each session of a run told, with its next answer.
func (s *State) tellDrain(run string, drain *work.Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parties {
		if p.actor.Run == run {
			p.drain.Store(drain)
		}
	}
}
