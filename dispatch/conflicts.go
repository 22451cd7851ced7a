package dispatch

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Conflicts are the leases of a run, on files or on directories above them, that
// somebody else holds than the caller. An operator speaks for the client that its
// process comes from: pids are its ancestors, the nearest first. If none of them has
// a session, every holder is somebody else. Without keys it is about all files and
// directories that somebody has leased.
func (s *State) Conflicts(ctx context.Context, caller *Session, pids []int, run string, keys []string) (list []*registry.HeldError, err error) {
	own := caller.OfActor()
	if caller.Actor().Role == Operator {
		own = nil
		for i := 0; i < len(pids) && own == nil; i++ {
			own = s.SessionsOf(pids[i])
		}
	}
	mine := make(map[uuid.UUID]bool)
	for _, se := range own {
		mine[se.ID()] = true
	}
	return list, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		list = nil
		r, ok := getRun(tx, run)
		if !ok {
			return nil // nobody has joined it
		}
		leases := s.leasesOf(r)
		keys := keys
		if len(keys) == 0 {
			for l := range leases.Leases(tx, registry.PathPrefix, "") {
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
