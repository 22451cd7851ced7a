package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// MaxResult is how many bytes an actor's result can have.
const MaxResult = 64 << 10

// An Exit is how the process of an actor ended.
type Exit struct {
	Status   Status
	ExitCode *int
	Signal   string
	Cause    string
	Cost     *Money // of its own, in this life; nil: not reported
	Output   string // the last of it: its result, if it has reported none
	Worktree string // kept, and where
}

// endWork ends a launched actor: its work is final, its sessions end, and
// whoever is launched below it is told to stop. They keep their sessions until
// their own processes are gone.
func (s *State) endWork(tx engine.Tx, run Run, a Actor, e Exit) (sessions []uuid.UUID) {
	s.conclude(tx, run, a, e)
	list := []Actor{a}
	for _, m := range below(tx, a, nil) {
		if s.stopWork(tx, run, m, Stop{Reason: fmt.Sprintf("its lead %s ended", a.Path), Status: Cancelled}) {
			list = append(list, m)
		}
	}
	cause := string(e.Status)
	if e.Cause != "" {
		cause += ": " + e.Cause[:min(len(e.Cause), maxCause)]
	}
	return s.endActors(tx, list, cause)
}

// stopTree tells a and all below it to stop, and returns those that can end at
// once.
func (s *State) stopTree(tx engine.Tx, run Run, a Actor, stop Stop) (now []Actor) {
	for _, m := range append([]Actor{a}, below(tx, a, nil)...) {
		if !m.Ended() && s.stopWork(tx, run, m, stop) {
			now = append(now, m)
		}
	}
	return now
}

// stopWork tells a living actor to stop. It reports true if that needs nobody
// else: the actor was not launched, or its order had not been handed out.
func (s *State) stopWork(tx engine.Tx, run Run, a Actor, stop Stop) (now bool) {
	w, launched := getWork(tx, a.ID)
	switch {
	case !launched:
		return true
	case w.Status.Final():
		return false
	case !w.handedOut():
		s.conclude(tx, run, a, Exit{Status: stop.Status, Cause: stop.Reason})
		return true
	case w.Stop == nil:
		stop.At = tx.Now()
		w.Stop = &stop
		putWork(tx, w)
		putUnfinished(tx, run.ID, a.ID, toStop)
		amendDispatched(tx, run.Name, func(d *Dispatched) { d.Orders++ })
	}
	return false
}

// conclude makes a work final. Its actor is ended in the same transaction.
func (s *State) conclude(tx engine.Tx, run Run, a Actor, e Exit) {
	held, lost := s.leasesAtExit(tx, run, a)
	amend(tx, a.ID, func(w *Work) {
		w.Status, w.ExitCode, w.Signal, w.Cause = e.Status, e.ExitCode, e.Signal, e.Cause[:min(len(e.Cause), maxCause)]
		w.EndedAt, w.Kept, w.Held, w.Lost = tx.Now(), e.Worktree, held, lost
		w.Session = uuid.Nil
		if e.Cost != nil {
			w.Spent += max(0, *e.Cost)
			w.Reported = true
		}
	})
	if _, reported := tx.Get(resultKey(a.ID)); !reported && e.Output != "" {
		tx.Put(engine.Row{Key: resultKey(a.ID), Value: lastOf(e.Output)})
	}
	tx.Delete(orderKey(a.ID))
	tx.Delete(unfinishedKey(run.ID, a.ID))
	amendDispatched(tx, run.Name, func(d *Dispatched) { d.Unfinished-- })
}

// maxCause bounds what is kept of a cause, in bytes.
const maxCause = 4 << 10

// maxLeaseNames bounds how many leases are told of an actor that has ended.
const maxLeaseNames = 100

// leasesAtExit are the first of the leases that the actor holds, and of those
// it has lost.
func (s *State) leasesAtExit(tx engine.Tx, run Run, a Actor) (held, lost []LeaseName) {
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
			if of, ok := scope(l.Scope); ok && len(held) < maxLeaseNames {
				held = append(held, LeaseName{Scope: of, Key: l.Key})
			}
		}
	}
	for _, l := range s.core.LostBy(tx, a.ID) {
		if of, ok := scope(l.Scope); ok && len(lost) < maxLeaseNames {
			lost = append(lost, LeaseName{of, l.Key, l.Reason})
		}
	}
	return held, lost
}

// lastOf is the end of an output, as a JSON string of at most MaxResult bytes.
func lastOf(output string) string {
	for n := MaxResult - 2; ; n -= max(1, n/8) { // what is escaped takes more
		text := output[max(0, len(output)-n):]
		for text != "" && !utf8.RuneStart(text[0]) {
			text = text[1:]
		}
		if b, err := json.Marshal(text); err == nil && len(b) <= MaxResult {
			return string(b)
		}
	}
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
	return results, s.eng.View(ctx, func(tx engine.Tx) error {
		results = make(map[uuid.UUID]json.RawMessage, len(actors))
		for _, id := range actors {
			if _, _, err := workIn(tx, l, id); err != nil {
				return err
			}
			if result := resultOf(tx, id); result != nil {
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
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		run, _ := getRun(tx, name)
		d, _ := getDispatched(tx, name)
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
	s.sever(ended, fmt.Errorf("run %s is finished", name))
	s.dismiss(l)
	return summary, nil
}

// DrainRun lets nobody in the run spawn any more, and has its agents told.
// With stop all of them are stopped.
func (s *State) DrainRun(ctx context.Context, se *Session, name, reason string, stop bool) (left int, err error) {
	if _, err := s.launcherOf(se, name); err != nil {
		return 0, err
	}
	var ended []uuid.UUID
	var drain *Drain // nil: all have been told
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		run, _ := getRun(tx, name)
		amendDispatched(tx, name, func(d *Dispatched) {
			if d.Drain == nil {
				d.Drain = &Drain{Reason: reason, At: tx.Now()}
				drain = d.Drain
			}
		})
		if stop {
			var list []Actor
			for id := range unfinished(tx, run.ID) {
				a, _ := getActor(tx, id)
				if s.stopWork(tx, run, a, Stop{Reason: reason, Status: Cancelled}) {
					list = append(list, a)
				}
			}
			ended = s.endActors(tx, list, "cancelled: "+reason)
		}
		d, _ := getDispatched(tx, name)
		left = d.Unfinished
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.sever(ended, fmt.Errorf("run %s ends: %s", name, reason))
	if drain != nil {
		s.tellDrain(name, drain)
	}
	return left, nil
}

// tellDrain has each session of a run told, with its next answer.
func (s *State) tellDrain(run string, drain *Drain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parties {
		if p.actor.Run == run {
			p.drain.Store(drain)
		}
	}
}
