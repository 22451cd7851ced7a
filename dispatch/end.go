package dispatch

import (
	"context"
	"fmt"
	"math"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// EndActor ends the actor at path and, if it leads, its whole sub-tree: tokens
// are void, sessions end, what they held is handed over. Ending the root ends
// the run. Actors that are launched, and have a process, are told to stop, and
// end with it.
func (s *State) EndActor(ctx context.Context, run, path, cause string) error {
	var ended []uuid.UUID
	err := rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		r, ok := getRun(tx, run)
		if !ok || !r.EndedAt.IsZero() {
			return notFound("run %q", run)
		}
		a, err := actorAt(tx, r, path)
		if err != nil {
			return err
		}
		list := s.stopTree(tx, r, a, work.Stop{Reason: cause, Status: work.Cancelled})
		ended = s.endActors(tx, list, cause)
		if d, ok := work.RunOf(tx, run); ok && a.Role == Root && d.Unfinished == 0 {
			endRun(tx, run)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.cutOff(ended, fmt.Errorf("actor %s of run %s has ended: %s", path, run, cause))
	return nil
}

// endActors ends actors and returns the sessions that ended with them. All of
// them are closed before the first lease is freed, so that nothing is handed
// over among them. With its root a run ends, unless its actors are launched:
// then its launcher says when.
func (s *State) endActors(tx engine.Tx, list []Actor, cause string) (sessions []uuid.UUID) {
	for _, a := range list {
		for se := range sessionsOf(tx, a.ID) {
			tx.Delete(sessionKey(se.ID))
			sessions = append(sessions, se.ID)
		}
	}
	for _, id := range sessions {
		s.core.EndSession(tx, id, math.MaxInt)
	}
	for _, a := range list {
		if a.Transient {
			s.removeActor(tx, a)
			continue
		}
		run, _ := getRun(tx, a.Run)
		run.Actors--
		putRun(tx, run)
		if a.Role != Root {
			uncount(tx, a.Layer)
		} else if _, launched := work.RunOf(tx, a.Run); !launched {
			endRun(tx, a.Run)
		}
		a.EndedAt, a.EndCause, a.TokenHash = tx.Wall(), cause, nil
		putActor(tx, a)
	}
	return sessions
}

func endRun(tx engine.Tx, name string) {
	run, _ := getRun(tx, name)
	if run.EndedAt.IsZero() {
		run.EndedAt = tx.Wall()
	}
	putRun(tx, run)
}

func uncount(tx engine.Tx, layer uuid.UUID) {
	l, _ := getLayer(tx, layer)
	l.Members--
	putLayer(tx, l)
}

// below appends all actors below a that live to list, leads first. Below one
// that has ended there may be some whose process has not.
func below(tx engine.Tx, a Actor, list []Actor) []Actor {
	if !a.Role.Leads() {
		return list
	}
	for m := range members(tx, a.Leads) {
		if !m.Ended() {
			list = append(list, m)
		}
		list = below(tx, m, list)
	}
	return list
}

// removeActor leaves no trace of an actor that joined by itself.
func (s *State) removeActor(tx engine.Tx, a Actor) {
	run, _ := getRun(tx, a.Run)
	run.Actors--
	putRun(tx, run)
	uncount(tx, a.Layer)
	tx.Delete(memberKey(a.Layer, a.Name))
	tx.Delete(actorKey(a.ID))
	work.Drop(tx, a.ID)
	s.layer(a.Layer, run.Caps).Store().In(tx).DropPeer(a.Name, 1<<30)
}

// dropRun removes every row of an ended run.
func (s *State) dropRun(tx engine.Tx, run Run) {
	s.leasesOf(run).Drop(tx, math.MaxInt)
	s.queue.Drop(tx, run.ID)
	s.dropLayer(tx, run.Layer, run.Caps)
	tx.Delete(actorKey(run.Root))
	work.Drop(tx, run.Root)
	work.DropRun(tx, run.Name)
	tx.Delete(runKey(run.Name))
}

func (s *State) dropLayer(tx engine.Tx, id uuid.UUID, caps Caps) {
	for m := range members(tx, id) {
		if m.Role.Leads() {
			s.dropLayer(tx, m.Leads, caps)
		}
		tx.Delete(memberKey(id, m.Name))
		tx.Delete(actorKey(m.ID))
		work.Drop(tx, m.ID)
	}
	s.layer(id, caps).Store().In(tx).Drop(1 << 30)
	tx.Delete(layerKey(id))
}
