package dispatch

import (
	"slices"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

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
