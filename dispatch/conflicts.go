package dispatch

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
	"github.com/leasehold/leasehold/registry/filekey"
)

// MaxConflicts is the greatest number of leases that [State.Conflicts] returns
// if it is given no keys.
const MaxConflicts = 1000

// Conflicts returns the leases of a run that others hold on the given files or
// on directories above them. A caller that is an operator speaks for the client
// that started it: pids are its ancestors, the nearest first; marks are those of
// ancestors on another machine. If none of them
// has a session, every holder counts as another. If keys is empty, Conflicts
// returns every leased file and directory, up to MaxConflicts. For a confined
// caller the run is always its own.
//
// It reads a snapshot: a hook asks before each shell command, and there may be
// very many leased files.
func (s *State) Conflicts(ctx context.Context, caller *Session, pids []int, marks []string, run string, keys []string) (list []*registry.HeldError, err error) {
	if run, err = caller.askedRun(ctx, run); err != nil {
		return nil, err
	}
	mine := make(map[uuid.UUID]bool) // sessions, or the actor with all that it has
	if caller.Actor().Role != Operator {
		mine[caller.Actor().ID] = true // it may have some that are not connected
	} else {
		for _, se := range s.spokenFor(caller, pids, marks) {
			mine[se.ID()] = true
		}
	}
	return list, rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		r, ok := getRun(tx, run)
		if !ok {
			return nil // nobody has joined this run
		}
		leases := s.leasesOf(r)
		known := make(map[string]bool)
		add := func(held *registry.HeldError) {
			if !mine[held.Holder.Session] && !mine[held.Holder.Actor] && !known[held.Key] {
				known[held.Key] = true
				list = append(list, held)
			}
		}
		for _, key := range keys {
			for held := range leases.InTheWay(tx, key) {
				add(held)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if len(keys) > 0 {
			return nil
		}
		for l := range leases.Leases(tx, filekey.Prefix, "") {
			if add(leases.Refusal(tx, l)); len(list) == MaxConflicts || ctx.Err() != nil {
				break
			}
		}
		return context.Cause(ctx)
	})
}

// askedRun returns the run that a hook asks about.
func (se *Session) askedRun(ctx context.Context, run string) (string, error) {
	confined, err := se.Confined(ctx)
	if confined {
		run = se.actor.Run
	}
	return run, err
}

// spokenFor returns the sessions that a caller speaks for; see Conflicts.
func (s *State) spokenFor(caller *Session, pids []int, marks []string) (list []*Session) {
	if caller.Actor().Role != Operator {
		return caller.OfActor()
	}
	for i := 0; i < len(pids) && list == nil; i++ {
		list = s.SessionsOf(pids[i])
	}
	for i := 0; i < len(marks) && list == nil; i++ {
		list = s.SessionsMarked(marks[i])
	}
	return list
}

// NoteCommitted records that files are committed although others hold leases on
// them. The record names the client that the caller speaks for, or else the
// caller.
func (s *State) NoteCommitted(ctx context.Context, caller *Session, pids []int, marks []string, run string, held []*registry.HeldError) error {
	run, err := caller.askedRun(ctx, run)
	if err != nil {
		return err
	}
	by := caller.Actor()
	if own := s.spokenFor(caller, pids, marks); len(own) > 0 {
		by = own[0].Actor()
	}
	for some := range slices.Chunk(held, endStep) {
		err := rows.Update(ctx, s.eng, func(tx engine.Tx) error {
			r, ok := getRun(tx, run)
			for i := 0; ok && i < len(some); i++ {
				note(tx, r, by, event.Event{Kind: event.WriteOverruled, Key: some[i].Key, By: some[i].Holder.Path, Reason: "a commit"})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
