package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// Credentials say who connects.
type Credentials struct {
	Handle   string    // of an earlier session, tried first
	Actor    uuid.UUID // whose session that must be; zero: whoever's it is
	Token    string    // of an actor
	Operator bool      // the user of the daemon; the transport vouches for it

	// Without any of these, the caller joins Run as a new worker of its root
	// layer, called Name, or Name-2, Name-3, … where that is taken.
	Run  string
	Name string
}

// A Session is one connection's hold on a session. Several connections may
// hold one; it ends with the last of them, or with its actor.
type Session struct {
	*party
	resumed bool
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
	news   *engine.Watch         // wakes when the session has lost a lease; nil for an operator
	unsure atomic.Bool           // there may be losses to tell, whatever news says
	drain  atomic.Pointer[Drain] // the end of its run, to be told of once; nil: told, or not in sight
	ctx    context.Context
	end    context.CancelCauseFunc

	peer     Peer // of its first connection
	attached int  // connections; under State.mu
	ending   bool // cannot be resumed any more; under State.mu
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
	return registry.Holder{Session: p.id, Actor: p.actor.ID, Path: p.actor.Path}
}

// Resumed reports whether this connection went on with an earlier one's
// session.
func (se *Session) Resumed() bool { return se.resumed }

// Connect opens a session, or resumes one. Where the process at the other end
// comes from one that is launched, that decides before anything it says.
func (s *State) Connect(ctx context.Context, c Credentials, peer Peer) (*Session, error) {
	k := s.kinOf(peer)
	var own Actor // zero: the process is nobody's
	err := s.eng.View(ctx, func(tx engine.Tx) (err error) {
		own, err = s.assign(tx, c, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.Operator {
		return s.connectOperator(peer), nil
	}
	if c.Handle != "" {
		se, err := s.resume(ctx, c, k)
		if se != nil || err != nil {
			return se, err
		}
		if c.Token == "" && c.Run == "" && own.ID == uuid.Nil {
			return nil, fmt.Errorf("%w: the session to resume has ended", ErrUnauthenticated)
		}
	}
	record := sessionRecord{ID: uuid.New(), Peer: peer}
	handle, hash := newSecret(handleMark, record.ID)
	record.Secret = hash

	var actor Actor
	var run Run
	var drain *Drain
	err = s.eng.Update(ctx, func(tx engine.Tx) (err error) {
		switch {
		case c.Token != "":
			if actor, err = authenticate(tx, c.Token); err == nil {
				err = k.mayBe(actor)
			}
		case own.ID != uuid.Nil:
			if actor, _ = getActor(tx, own.ID); actor.Ended() {
				err = ErrUnauthenticated
			}
		case k.run != "":
			err = ErrUnauthenticated // its handle was of no use
		default:
			actor, err = s.join(tx, c.Run, c.Name)
		}
		if err != nil {
			return err
		}
		run, _ = getRun(tx, actor.Run)
		drain = drainOf(tx, run)
		record.Actor, record.OpenedAt = actor.ID, tx.Now()
		putSession(tx, record)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p := s.newParty(record.ID, handle)
	p.actor, p.run, p.peer = actor, run, peer
	p.drain.Store(drain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parties[p.id] = p
	p.attached = 1
	return &Session{party: p}, nil
}

func drainOf(tx engine.Tx, run Run) *Drain {
	d, _ := getDispatched(tx, run.Name)
	return d.Drain
}

func (s *State) newParty(id uuid.UUID, handle string) *party {
	p := &party{state: s, id: id, handle: handle, news: s.eng.Watch(registry.NewsKey(id))}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	context.AfterFunc(p.ctx, p.news.Stop)
	return p
}

// connectOperator gives the user of the daemon a session that is in no tree,
// holds nothing and needs no record.
func (s *State) connectOperator(peer Peer) *Session {
	id := uuid.New()
	p := s.newParty(id, "")
	p.peer = peer
	p.actor = Actor{ID: id, Name: operatorPath, Role: Operator, Path: operatorPath}
	p.attached = 1
	return &Session{party: p}
}

// Authenticate returns the actor that token belongs to.
func (s *State) Authenticate(ctx context.Context, token string) (a Actor, err error) {
	return a, s.eng.View(ctx, func(tx engine.Tx) (err error) {
		a, err = authenticate(tx, token)
		return err
	})
}

func authenticate(tx engine.Tx, token string) (Actor, error) {
	id, secret, ok := openSecret(tokenMark, token)
	if !ok {
		return Actor{}, ErrUnauthenticated
	}
	a, ok := getActor(tx, id)
	if !ok || !matches(a.TokenHash, secret) {
		return Actor{}, ErrUnauthenticated
	}
	return a, nil
}

// join makes a worker of the root layer of a run, and the run if need be.
func (s *State) join(tx engine.Tx, run, name string) (Actor, error) {
	if err := CheckRun(run); err != nil {
		return Actor{}, err
	}
	if err := CheckName(name); err != nil {
		return Actor{}, err
	}
	r, ok := getRun(tx, run)
	if !ok || !r.EndedAt.IsZero() {
		s.makeRun(tx, NewActor{Run: run, Name: RootPath, Role: Root})
		r, _ = getRun(tx, run)
	}
	lead, _ := getActor(tx, r.Root)
	base := name
	for n := 2; ; n++ {
		a, err := addMember(tx, r, lead, NewActor{Run: run, Name: name, Role: Worker})
		if errors.Is(err, ErrExists) {
			suffix := fmt.Sprintf("-%d", n)
			name = base[:min(len(base), layer.MaxName-len(suffix))] + suffix
			continue
		}
		if err != nil {
			return Actor{}, err
		}
		a.Transient = true
		putActor(tx, a)
		return a, nil
	}
}

// resume attaches to the session that the handle opens; nil if it has ended. A
// token beside it must be its actor's.
//
// The party is attached before the record is read, and whoever ends a session
// marks the party before removing the record: so either the record is still
// there and will be seen to be attached, or this finds it gone.
func (s *State) resume(ctx context.Context, c Credentials, k kin) (*Session, error) {
	id, secret, ok := openSecret(handleMark, c.Handle)
	if !ok {
		return nil, ErrUnauthenticated
	}
	p, ok := s.attach(id, c.Handle)
	if !ok {
		return nil, nil
	}
	var actor Actor
	var run Run
	var drain *Drain
	err := s.eng.View(ctx, func(tx engine.Tx) error {
		record, ok := get[sessionRecord](tx, sessionKey(id))
		if ok && !matches(record.Secret, secret) {
			return ErrUnauthenticated
		}
		if !ok {
			return ErrNotFound
		}
		if c.Actor != uuid.Nil && c.Actor != record.Actor {
			return ErrUnauthenticated
		}
		if c.Token != "" {
			if a, err := authenticate(tx, c.Token); err != nil || a.ID != record.Actor {
				return ErrUnauthenticated
			}
		}
		actor, _ = getActor(tx, record.Actor)
		run, _ = getRun(tx, actor.Run)
		drain = drainOf(tx, run)
		return k.mayBe(actor)
	})
	if err != nil {
		s.unattach(p)
		if errors.Is(err, ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.actor.ID == uuid.Nil { // else an earlier connection has set it, and may be reading it
		p.actor, p.run = actor, run
		p.drain.Store(drain)
		p.unsure.Store(true)
	}
	delete(s.detached, id)
	return &Session{party: p, resumed: true}, nil
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

// unattach takes back an attach that found no session to resume.
func (s *State) unattach(p *party) {
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
	if _, held := s.held[session]; held {
		return true
	}
	return s.connectedLocked(session)
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
// are cancelled, and everything it held and waited for is given back in one
// transaction. Closing again answers the same.
func (se *Session) Close(cause error) error {
	se.once.Do(func() { se.err = se.state.detach(se.party, cause) })
	return se.err
}

func (s *State) detach(p *party, cause error) error {
	s.mu.Lock()
	p.attached--
	_, held := s.held[p.id]
	last := p.attached == 0 && !p.ending && !held
	p.ending = p.ending || last
	s.mu.Unlock()
	switch {
	case !last:
		return nil
	case p.actor.Role == Operator: // has no record, and holds nothing
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
	defer s.sever([]uuid.UUID{id}, cause)
	// Whoever is gone cannot cancel this: it must happen.
	return s.eng.Update(context.Background(), func(tx engine.Tx) error {
		record, ok := get[sessionRecord](tx, sessionKey(id))
		if !ok {
			return nil // ended with its actor, or an operator's
		}
		tx.Delete(sessionKey(id))
		s.core.EndSession(tx, id)
		s.queue.EndSession(tx, id)
		a, ok := getActor(tx, record.Actor)
		if ok && a.Transient && !hasSession(tx, a.ID) {
			s.removeActor(tx, a)
		}
		return nil
	})
}

func hasSession(tx engine.Tx, actor uuid.UUID) bool {
	for range sessionsOf(tx, actor) {
		return true
	}
	return false
}

// sever forgets sessions whose records are gone, and ends their contexts.
func (s *State) sever(sessions []uuid.UUID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sessions {
		delete(s.detached, id)
		delete(s.held, id)
		if p, ok := s.parties[id]; ok {
			p.ending = true
			p.end(cause)
			delete(s.parties, id)
		}
	}
}
