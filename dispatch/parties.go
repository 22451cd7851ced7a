package dispatch

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/registry"
)

// SessionsOf are the sessions of a client's process: those whose connection
// comes from it, or from a process that it has started, as a shim is.
func (s *State) SessionsOf(pid int) (ids []uuid.UUID) {
	s.mu.Lock()
	peers := make(map[uuid.UUID]process.Peer, len(s.parties))
	for id, p := range s.parties {
		peers[id] = p.peer
	}
	s.mu.Unlock()
	for id, peer := range peers {
		if peer.PID != 0 && (peer.PID == pid || s.opts.Process(peer.PID).Parent == pid) {
			ids = append(ids, id)
		}
	}
	return ids
}

// EndParty releases what a sub-agent of a session holds, and gives up its
// places in lines.
func (s *State) EndParty(ctx context.Context, session uuid.UUID, party string) error {
	s.mu.Lock()
	p, ok := s.parties[session]
	s.mu.Unlock()
	if !ok {
		return registry.ErrSessionEnded
	}
	return (&Session{party: p}).EndParty(ctx, party)
}
