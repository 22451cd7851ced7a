package dispatch

import (
	"slices"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

// connectedSession finds a session that is connected to this daemon.
func (s *State) connectedSession(id uuid.UUID) (*Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.parties[id]
	if !ok || p.actor.ID == uuid.Nil {
		return nil, registry.ErrSessionEnded
	}
	return &Session{party: p}, nil
}

// OnBehalf returns another session, so that an answer of se, an operator's
// session, can carry that session's notices. If nobody reads the answer, the
// notices are told again.
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
