package dispatch

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// Conflicts are the leases of a run, on files or on directories above them, that
// somebody else holds than the caller. An operator speaks for the client that its
// process comes from: pids are its ancestors, the nearest first. If none of them has
// a session, every holder is somebody else.
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
		for _, key := range keys {
			for _, covering := range append(treesAbove(key), key) {
				if held := leases.InTheWay(tx, covering); held != nil && !held.Reserved && !mine[held.Holder.Session] &&
					!slices.ContainsFunc(list, func(h *registry.HeldError) bool { return h.Key == covering }) {
					list = append(list, held)
				}
			}
		}
		return nil
	})
}

// treesAbove are the keys that cover a file by a directory above it.
func treesAbove(key string) (keys []string) {
	file, ok := strings.CutPrefix(key, registry.PathPrefix)
	if !ok {
		return nil
	}
	for dir := path.Dir(file); ; dir = path.Dir(dir) {
		keys = append(keys, registry.PathKey(dir, true))
		if dir == "." || dir == "/" {
			return keys
		}
	}
}
