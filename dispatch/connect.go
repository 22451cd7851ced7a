package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// Credentials identify the caller that connects.
type Credentials struct {
	Handle   string    // of an earlier session, tried first
	Actor    uuid.UUID // zero: any actor
	Token    string    // of an actor
	Operator bool      // the user of the daemon, as the transport has verified
	Vouched  *Actor    // with Operator: the actor another server speaks for; nil: none

	// Without any of these, the caller joins Run as a new worker of its root
	// layer. The worker is called Name, or Name-2, Name-3, … if that name is
	// taken.
	Run  string
	Name string

	Origin Origin // where the caller works
}

// An Origin is where the process of a session was working when it connected. It
// is only shown to people, except that a client is told what it lost by its PID or Mark:
// see [State.leftBy].
type Origin struct {
	Directory string `json:",omitempty"` // absolute; "": unknown
	PID       int    `json:",omitempty"` // of the client, which may be the parent of the peer
	Mark      string `json:",omitempty"` // of the client's process, if that runs elsewhere: see [process.Mark]
	Access    string `json:",omitempty"` // name of the operator's token that let the client in, if it came over the network
}

// Connect opens a session, or resumes one. If the peer process descends from a
// launched process, that ancestry takes precedence over the credentials.
func (s *State) Connect(ctx context.Context, c Credentials, peer process.Peer) (*Session, error) {
	if v := c.Vouched; v != nil && !v.Role.Outside() {
		return s.connectVouched(*v, peer), nil // where it is known, its process may be one that was launched
	}
	k := s.launchers.Kin(peer)
	var own Actor // zero: the process does not belong to an actor
	err := rows.View(ctx, s.eng, func(tx engine.Tx) (err error) {
		own, err = assign(tx, c, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.Operator {
		if c.Vouched != nil {
			return s.connectVouched(*c.Vouched, peer), nil
		}
		return s.connectOutside(Actor{ID: uuid.New(), Name: operatorPath, Role: Operator, Path: operatorPath}, "", peer), nil
	}
	if IsAccess(c.Token) {
		return s.connectAccess(ctx, c.Token, k, peer)
	}
	if c.Handle != "" {
		se, err := s.resume(ctx, c, k)
		if se != nil || err != nil {
			return se, err
		}
		if c.Token == "" && c.Run == "" && own.ID == uuid.Nil {
			return nil, sessionOverError{}
		}
	}
	was := s.leftBy(c.Run, c.Origin, c.Handle)
	record := sessionRecord{ID: uuid.New(), Peer: peer, Origin: c.Origin}
	handle, hash := s.opts.Partition.newSecret(handleMark, record.ID)
	record.Secret = hash
	return s.open(ctx, record, handle, was, func(tx engine.Tx) (actor Actor, err error) {
		switch {
		case c.Token != "":
			actor, err = authenticate(tx, c.Token)
			switch {
			case err == nil:
				err = mayBe(tx, k, actor)
			case err == ErrUnauthenticated && c.Handle != "":
				err = say(err, "%v; your session has ended too, so the leases and claims that you held are lost: stop touching what they guard", err)
			}
		case own.ID != uuid.Nil:
			if actor, _ = getActor(tx, own.ID); actor.Ended() {
				err = actor.endedError()
			}
		case k.Run != "":
			err = ErrUnauthenticated // its handle could not be resumed
		default:
			actor, err = s.join(tx, c.Run, c.Name)
		}
		return actor, err
	})
}

// open creates the record of a session and opens the session, for the actor
// that choose finds or creates in the same transaction.
func (s *State) open(ctx context.Context, record sessionRecord, handle string, was former, choose func(engine.Tx) (Actor, error)) (*Session, error) {
	update := func(fn func(engine.Tx) error) error { return rows.Update(ctx, s.eng, fn) }
	se, err := s.connectTo(record.ID, handle, update, func(tx engine.Tx) (sessionRecord, Actor, error) {
		actor, err := choose(tx)
		if err != nil {
			return record, actor, err
		}
		record.Actor = actor.ID
		putSession(tx, record)
		noteSession(tx, actor, record.ID, event.SessionBegan, record.Origin.Directory)
		s.tellFormer(tx, was, actor.ID)
		return record, actor, nil
	})
	switch {
	case err != nil:
		return nil, err
	case se.ctx.Err() != nil: // its actor ended since
		return nil, context.Cause(se.ctx)
	}
	se.dir = record.Origin.Directory
	return se, nil
}

// connectTo attaches a connection to the session with that id. In transact, find returns
// the record and the actor of the session, which it may create. connectTo returns nil if
// the session is ending.
//
// The party is attached before the record is read or created, and a session that ends
// has its party marked before its record is removed. So either the ending sees that the
// party is attached, or find finds no record.
func (s *State) connectTo(id uuid.UUID, handle string, transact func(func(engine.Tx) error) error, find func(engine.Tx) (sessionRecord, Actor, error)) (*Session, error) {
	p, ok := s.attach(id, handle)
	if !ok {
		return nil, nil
	}
	var record sessionRecord
	var actor Actor
	var run Run
	var d work.Dispatched
	err := transact(func(tx engine.Tx) (err error) {
		if record, actor, err = find(tx); err != nil {
			return err
		}
		run, _ = getRun(tx, actor.Run)
		d, _ = work.RunOf(tx, run.Name)
		return nil
	})
	if err != nil {
		s.detachFailed(p)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.actor.ID == uuid.Nil { // otherwise an earlier connection has set it, and may be reading it
		p.become(actor, run, record.Peer, d.Drain)
		p.guest, p.mark = record.Guest, record.Origin.Mark
		p.agents.recall(record.Agents)
	}
	return &Session{party: p}, nil
}

func (s *State) newParty(id uuid.UUID, handle string) *party {
	p := &party{state: s, id: id, handle: handle}
	p.losses.init()
	p.mail.init()
	p.ctx, p.end = context.WithCancelCause(context.Background())
	return p
}

// become sets the actor that p belongs to. The caller holds State.mu.
func (p *party) become(a Actor, run Run, peer process.Peer, drain *work.Drain) {
	p.actor, p.run, p.peer = a, run, peer
	p.ofRun, p.ofLayer = p.state.leasesOf(run), p.state.core.Registry(layerScope(a.homeLayer()))
	p.drain.Store(drain)
	p.losses.changes = p.state.eng.Watch(registry.NewsKey(a.ID))
	p.mail.changes = p.state.eng.Watch(mail.Key(a.ID))
	context.AfterFunc(p.ctx, func() { p.losses.changes.Stop(); p.mail.changes.Stop() })
}

// connectVouched opens a session for an actor of another partition, or one that is in no
// tree. It holds nothing and needs no record.
func (s *State) connectVouched(a Actor, peer process.Peer) *Session {
	se := s.connectOutside(a, "", peer)
	se.vouched = true
	return se
}

// connectAccess opens a session for the token of an access. It refuses a
// launched process, which must connect as its own actor.
func (s *State) connectAccess(ctx context.Context, token string, k work.Kin, peer process.Peer) (*Session, error) {
	if err := notOutside(k); err != nil {
		return nil, err
	}
	a, err := s.Authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	handle, _ := s.opts.Partition.newSecret(handleMark, uuid.New())
	return s.connectOutside(a, handle, peer), nil
}

// Authenticate returns the actor that token belongs to.
func (s *State) Authenticate(ctx context.Context, token string) (a Actor, err error) {
	replaced := false
	look := func(tx engine.Tx) (err error) {
		if !IsAccess(token) {
			a, err = authenticate(tx, token)
			return err
		}
		var access Access
		access, replaced, err = accessBy(tx, token)
		a = access.actor()
		return err
	}
	// An actor that is let in is told nothing yet. What it asks for waits until
	// all that was seen here is durable.
	if rows.View(engine.Peek(ctx), s.eng, look) != nil {
		err = rows.View(ctx, s.eng, look)
	}
	if err == nil && replaced {
		err = s.voidFormer(ctx, token)
	}
	return a, err
}

// Vet refuses a process that presents the token of an actor that it does not
// belong to.
func (s *State) Vet(ctx context.Context, a Actor, peer process.Peer) error {
	k := s.launchers.Kin(peer)
	switch {
	case !k.Known() && !k.Lost:
		return nil
	case a.Role.Outside():
		return notOutside(k)
	}
	return rows.View(ctx, s.eng, func(tx engine.Tx) error { return mayBe(tx, k, a) })
}

func authenticate(tx engine.Tx, token string) (Actor, error) {
	if IsAccess(token) {
		a, _, err := accessBy(tx, token)
		return a.actor(), err
	}
	id, secret, ok := openSecret(tokenMark, token)
	if !ok {
		return Actor{}, ErrUnauthenticated
	}
	a, ok := getActor(tx, id)
	if !ok || !matches(a.TokenHash, secret) {
		return Actor{}, ErrUnauthenticated
	}
	if a.Ended() {
		return Actor{}, a.endedError()
	}
	if !a.TokenExpires.IsZero() && !tx.Wall().Before(a.TokenExpires) {
		return Actor{}, say(ErrUnauthenticated, "unauthenticated: the token of %s expired at %s; the operator issues another with leasehold actor token", a.Path, a.TokenExpires.UTC().Format(time.RFC3339))
	}
	return a, nil
}

// join creates a worker in the root layer of a run. It creates the run if necessary.
func (s *State) join(tx engine.Tx, run, name string) (Actor, error) {
	if err := CheckRun(run); err != nil {
		return Actor{}, err
	}
	if err := cmp.Or(CheckName(name), s.opts.Partition.check(run)); err != nil {
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

// endedWith returns the error of a session that ended together with its actor,
// or nil if it ended otherwise.
func endedWith(tx engine.Tx, id uuid.UUID, secret []byte) error {
	record, ok := rows.Get[sessionRecord](tx, closedPrefix+string(id[:]))
	if !ok || !matches(record.Secret, secret) {
		return nil
	}
	a, ok := getActor(tx, record.Actor)
	if !ok || !a.Ended() {
		return nil
	}
	return a.endedError()
}

// resume attaches to the session that the handle belongs to. It returns nil if
// that session has ended. If there is a token as well, it must belong to the
// session's actor.
func (s *State) resume(ctx context.Context, c Credentials, k work.Kin) (*Session, error) {
	id, secret, ok := openSecret(handleMark, c.Handle)
	if !ok {
		return nil, ErrUnauthenticated
	}
	view := func(fn func(engine.Tx) error) error { return rows.View(ctx, s.eng, fn) }
	se, err := s.connectTo(id, c.Handle, view, func(tx engine.Tx) (record sessionRecord, actor Actor, err error) {
		record, ok := rows.Get[sessionRecord](tx, sessionKey(id))
		switch {
		case ok && !matches(record.Secret, secret), c.Actor != uuid.Nil && ok && c.Actor != record.Actor:
			return record, actor, ErrUnauthenticated
		case !ok:
			return record, actor, cmp.Or(endedWith(tx, id, secret), ErrNotFound)
		case c.Token != "":
			if a, err := authenticate(tx, c.Token); err != nil || a.ID != record.Actor {
				return record, actor, ErrUnauthenticated
			}
		}
		if o := c.Origin; record.Peer.Here().PID == 0 && (o.PID != 0 || o.Mark != "") {
			record.Peer, record.Origin = k.Process, o // the daemon before ran in another container
		}
		actor, _ = getActor(tx, record.Actor)
		return record, actor, mayBe(tx, k, actor)
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, nil
	case se == nil || err != nil:
		return nil, err
	}
	s.back(id, k.Process)
	se.resumed, se.dir = true, c.Origin.Directory
	return se, nil
}
