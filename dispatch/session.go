package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// A Session is one connection's reference to a session. Several connections may
// share a session. It ends with the last of them, or with its actor.
type Session struct {
	*party
	resumed bool
	dir     string // working directory of this connection's process; "": unknown
	once    sync.Once
	err     error
}

// A party is a session that is connected to this daemon. All connections of the
// session share it.
type party struct {
	state  *State
	id     uuid.UUID
	actor  Actor
	run    Run
	handle string

	ofRun, ofLayer *registry.Registry // of its leases; nil if it takes none

	losses bulletin                   // about leases of the session's actor
	mail   bulletin                   // about messages to the actor
	unread map[string]int             // messages that each agent knows to be left; under State.mu
	told   atomic.Bool                // some notices or messages have been told since the last Retell
	lately []telling                  // of these notices; under State.mu
	drain  atomic.Pointer[work.Drain] // the pending end of its run, of which each agent is told once; nil: none
	ctx    context.Context
	end    context.CancelCauseFunc

	agents   subAgents    // those that its client distinguishes
	calls    call.Log     // which answers its clients have received
	peer     process.Peer // of its first connection
	vouched  bool         // see Credentials
	mark     string       // of its client's process, if that runs elsewhere
	guest    bool         // the daemon holds it open, for a client without a connection
	parent   atomic.Int64 // pid of the parent of its process, when that was last read; 0: never
	attached int          // connections; under State.mu
	toldOf   []toldEnd    // ended actors that its answers have told of; under State.mu
	toldFor  []*party     // whose notices an operator's answers have told; under State.mu
	groups   []string     // see Show; under State.mu
	ending   bool         // cannot be resumed any more; under State.mu
}

// Show says which groups of tools the session's client shows its model; nil: all.
func (p *party) Show(groups []string) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.groups = groups
}

// Groups returns the groups of tools that the model of the session's client sees; nil: all.
// The client of a guest has no tools for the run that the guest is in.
func (p *party) Groups() []string {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if p.guest {
		return []string{}
	}
	return p.groups
}

// ID identifies the session. It is not secret.
func (p *party) ID() uuid.UUID { return p.id }

// Actor is the session's actor, as it was when the session connected.
func (p *party) Actor() Actor { return p.actor }

// Handle is the secret that resumes the session; "" for an operator's session.
func (p *party) Handle() string { return p.handle }

// Context is cancelled, with the cause, when the session has ended.
func (p *party) Context() context.Context { return p.ctx }

// Vouched reports whether another server answers for whom the session acts, who is of no
// run of this partition.
func (p *party) Vouched() bool { return p.vouched }

// Peer is the process of the session's first connection.
func (p *party) Peer() process.Peer { return p.peer }

// Guest reports whether the session is one of a client without a connection of its own.
func (p *party) Guest() bool { return p.guest }

// Holder is the session as a holder of leases.
func (p *party) Holder() registry.Holder {
	return registry.Holder{Session: p.id, Actor: p.actor.ID, Path: p.actor.Path, Local: p.peer.PID != 0 && !p.peer.Elsewhere()}
}

// CallLog knows which of the session's calls have been answered, and which
// answers its clients have received.
func (p *party) CallLog() *call.Log { return &p.calls }

// Resumed reports whether this connection resumed an existing session.
func (se *Session) Resumed() bool { return se.resumed }

// Directory returns the working directory of this connection's process or, if
// that is unknown, the one recorded for the session. It returns "" if neither
// is known.
func (se *Session) Directory(ctx context.Context) (string, error) {
	if se.dir != "" {
		return se.dir, nil
	}
	o, err := se.OriginOf(ctx, se.Holder())
	return o.Directory, err
}

// attach adds a connection to a session, unless the session is ending.
func (s *State) attach(id uuid.UUID, handle string) (*party, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.parties[id]
	if !ok {
		p = s.newParty(id, handle)
		s.parties[id] = p
	}
	if p.ending {
		return nil, false
	}
	p.attached++
	return p, true
}

// detachFailed reverses an attach that found no session to resume.
func (s *State) detachFailed(p *party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.attached--; p.attached == 0 {
		p.end(ErrUnauthenticated)
		delete(s.parties, p.id)
	}
}

// present reports whether a session is connected to this daemon, or is kept
// open for a launched process.
func (s *State) present(session uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectedLocked(session) || s.launchers.KeptOpen(session)
}

// apart reports whether two names of agents of a session are those of two for sure.
func (s *State) apart(session uuid.UUID, a, b string) bool {
	s.mu.Lock()
	p, ok := s.parties[session]
	s.mu.Unlock()
	return !ok || p.agents.apart(a, b)
}

// connected reports whether a session has a connection.
func (s *State) connected(session uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectedLocked(session)
}

func (s *State) connectedLocked(session uuid.UUID) bool {
	p, ok := s.parties[session]
	return ok && p.attached > 0 && !p.ending
}

// Close ends this connection's use of the session. When the last connection
// closes, the session ends: its calls are cancelled, it can be given nothing
// more, and everything it held or waited for is given back, in as many
// transactions as that takes. But a session that awaits its own process after
// a restart only loses the connection. Calling Close again returns the same result.
func (se *Session) Close(cause error) error {
	se.once.Do(func() { se.err = se.state.detach(se.party, cause) })
	return se.err
}

func (s *State) detach(p *party, cause error) error {
	s.mu.Lock()
	p.attached--
	_, awaited := s.detached[p.id]
	last := p.attached == 0 && !p.ending && !awaited && !s.launchers.KeptOpen(p.id)
	p.ending = p.ending || last
	s.mu.Unlock()
	switch {
	case !last:
		return nil
	case p.actor.Role.Outside() || p.vouched: // has no record, and holds nothing
		p.end(cause)
		return nil
	default:
		return s.endSession(p.id, cause)
	}
}

// endSession ends a session that nobody can resume any more. The waiting calls
// are cancelled first, so that none of them is granted what the session frees.
// The party stays registered, marked as ending, until the record is deleted, so
// that a resume in between finds it.
func (s *State) endSession(id uuid.UUID, cause error) error {
	s.mu.Lock()
	if p, ok := s.parties[id]; ok {
		p.end(cause)
	}
	s.mu.Unlock()
	defer s.cutOff(cut{id, cause})
	for done, first := false, true; !done; first = false {
		if !first { // sessions that held much take turns: others wait for each step
			s.ends <- struct{}{}
		}
		// The caller may be gone, but the session must end nevertheless.
		err := rows.Update(engine.Needed(context.Background()), s.eng, func(tx engine.Tx) error {
			record, ok := rows.Get[sessionRecord](tx, endingSession+string(id[:]))
			if !ok {
				record, ok = rows.Get[sessionRecord](tx, sessionKey(id))
				tx.Delete(sessionKey(id))
				if a, is := getActor(tx, record.Actor); ok && is {
					noteSession(tx, a, id, event.SessionEnded, fmt.Sprint(cause))
				}
			}
			if !ok {
				done = true // an operator's session, or one that ended with its actor
				return nil
			}
			e := &ender{s: s, tx: tx, left: endStep}
			done = e.giveBack(record)
			return nil
		})
		if !first {
			<-s.ends
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutOff removes sessions whose records are gone, and ends their contexts.
func (s *State) cutOff(cuts ...cut) {
	for _, c := range cuts {
		s.launchers.UnkeepOpen(c.session)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range cuts {
		delete(s.detached, c.session)
		if p, ok := s.parties[c.session]; ok {
			p.ending = true
			p.end(c.cause)
			delete(s.parties, c.session)
		}
	}
}

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
