package dispatch

import (
	"context"
	"fmt"
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

// A Session is one connection's hold on a session. Several connections may
// hold one; it ends with the last of them, or with its actor.
type Session struct {
	*party
	resumed bool
	dir     string // where the process of this connection works; "": not known
	once    sync.Once
	err     error
}

// A party is a session that is connected to this process.
type party struct {
	state  *State
	id     uuid.UUID
	actor  Actor
	run    Run
	handle string
	losses bulletin                   // of the actor's sessions
	mail   bulletin                   // the actor's messages
	unread atomic.Int64               // messages that the session knows it can ask for
	told   atomic.Bool                // some of either was told lately
	drain  atomic.Pointer[work.Drain] // the end of its run, to be told of once; nil: told, or not in sight
	ctx    context.Context
	end    context.CancelCauseFunc

	agents   subAgents    // that its client tells apart
	calls    call.Log     // whose answers its clients have
	peer     process.Peer // of its first connection
	guest    bool         // the daemon holds it open, for a client without a connection
	attached int          // connections; under State.mu
	toldFor  []*party     // whose notices an operator's answers have told; under State.mu
	ending   bool         // cannot be resumed any more; under State.mu
}

// ID names the session. It is not a secret.
func (p *party) ID() uuid.UUID { return p.id }

// Actor is whom the session acts for, as it was when it connected.
func (p *party) Actor() Actor { return p.actor }

// Handle is the secret by which the session is resumed; "" for an operator's.
func (p *party) Handle() string { return p.handle }

// Context ends, with the cause, when the session has ended.
func (p *party) Context() context.Context { return p.ctx }

// Holder is the session as a party to leases.
func (p *party) Holder() registry.Holder {
	return registry.Holder{Session: p.id, Actor: p.actor.ID, Path: p.actor.Path, Local: p.peer.PID != 0}
}

// CallLog knows which of the session's calls have an answer, and whose answers
// its clients have.
func (p *party) CallLog() *call.Log { return &p.calls }

// Resumed reports whether this connection went on with an earlier one's
// session.
func (se *Session) Resumed() bool { return se.resumed }

// Directory is where the process of this connection works, or else where that of its
// session's first one does; "" if neither is known.
func (se *Session) Directory(ctx context.Context) (string, error) {
	if se.dir != "" {
		return se.dir, nil
	}
	o, err := se.OriginOf(ctx, se.Holder())
	return o.Directory, err
}

// attach counts one more connection to a session, unless it is ending.
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

// detachFailed takes back an attach that found no session to resume.
func (s *State) detachFailed(p *party) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.attached--; p.attached == 0 {
		p.end(ErrUnauthenticated)
		delete(s.parties, p.id)
	}
}

// present reports whether a session is there: connected to this process, or
// kept open for a process that is launched.
func (s *State) present(session uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectedLocked(session) || s.launchers.KeptOpen(session)
}

// connected reports whether a connection holds a session.
func (s *State) connected(session uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connectedLocked(session)
}

func (s *State) connectedLocked(session uuid.UUID) bool {
	p, ok := s.parties[session]
	return ok && p.attached > 0 && !p.ending
}

// Close ends this connection's hold. The last one ends the session: its calls
// are cancelled, it can be given nothing any more, and everything it held and
// waited for is given back, in as many transactions as that takes. Closing again
// answers the same.
func (se *Session) Close(cause error) error {
	se.once.Do(func() { se.err = se.state.detach(se.party, cause) })
	return se.err
}

func (s *State) detach(p *party, cause error) error {
	s.mu.Lock()
	p.attached--
	last := p.attached == 0 && !p.ending && !s.launchers.KeptOpen(p.id)
	p.ending = p.ending || last
	s.mu.Unlock()
	switch {
	case !last:
		return nil
	case p.actor.Role.Outside(): // has no record, and holds nothing
		p.end(cause)
		return nil
	default:
		return s.endSession(p.id, cause)
	}
}

// endSession ends one session that nobody can resume any more. The calls that
// wait are cancelled first, so that none of them is granted what is freed. The
// party stays known, as ending, until the record is gone: a resume in between
// finds it.
func (s *State) endSession(id uuid.UUID, cause error) error {
	s.mu.Lock()
	if p, ok := s.parties[id]; ok {
		p.end(cause)
	}
	s.mu.Unlock()
	defer s.cutOff(cut{id, cause})
	for done, first := false, true; !done; first = false {
		if !first { // sessions that held much take turns: each step is one that others wait for
			s.ends <- struct{}{}
		}
		// Whoever is gone cannot cancel this: it must happen.
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
				done = true // an operator's, or ended with its actor
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

// cutOff forgets sessions whose records are gone, and ends their contexts.
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
