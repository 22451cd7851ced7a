package dispatch

import (
	"context"
	"slices"

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
	se, err := s.connectedSession(session)
	if err != nil {
		return err
	}
	return se.EndParty(ctx, party)
}

// connectedSession finds a session that is connected to this process.
func (s *State) connectedSession(id uuid.UUID) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.parties[id]
	if !ok || p.actor.ID == uuid.Nil {
		return nil, registry.ErrSessionEnded
	}
	return &Session{party: p}, nil
}

// OnBehalf gives another session, for an answer of this one, an operator's, to tell
// what that is to be told. If nobody reads the answer, it is told again.
func (se *Session) OnBehalf(of uuid.UUID) (*Session, error) {
	other, err := se.state.connectedSession(of)
	if err != nil || of == se.id {
		return other, err
	}
	se.state.mu.Lock()
	defer se.state.mu.Unlock()
	if !slices.Contains(se.toldFor, other.party) {
		se.toldFor = append(se.toldFor, other.party)
	}
	return other, nil
}
