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

// Conflicts returns the leases of a run that others hold on the given files or
// on directories above them. A caller that is an operator speaks for the client
// that started it: pids are its ancestors, the nearest first; marks are those of
// ancestors on another machine. If none of them
// has a session, every holder counts as another. If keys is empty, Conflicts
// checks every leased file and directory.
func (s *State) Conflicts(ctx context.Context, caller *Session, pids []int, marks []string, run string, keys []string) (list []*registry.HeldError, err error) {
	mine := make(map[uuid.UUID]bool)
	for _, se := range s.spokenFor(caller, pids, marks) {
		mine[se.ID()] = true
	}
	return list, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		list = nil
		r, ok := getRun(tx, run)
		if !ok {
			return nil // nobody has joined this run
		}
		leases := s.leasesOf(r)
		keys := keys
		if len(keys) == 0 {
			for l := range leases.Leases(tx, filekey.Prefix, "") {
				keys = append(keys, l.Key)
			}
		}
		for _, key := range keys {
			for held := range leases.InTheWay(tx, key) {
				if !mine[held.Holder.Session] && !slices.ContainsFunc(list, func(h *registry.HeldError) bool { return h.Key == held.Key }) {
					list = append(list, held)
				}
			}
		}
		return nil
	})
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
	by := caller.Actor()
	if own := s.spokenFor(caller, pids, marks); len(own) > 0 {
		by = own[0].Actor()
	}
	return rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		r, ok := getRun(tx, run)
		for i := 0; ok && i < len(held); i++ {
			note(tx, r, by, event.Event{Kind: event.WriteOverruled, Key: held[i].Key, By: held[i].Holder.Path, Reason: "a commit"})
		}
		return nil
	})
}
