package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// A Writer is a client whose hook asks before it writes. It may already have a
// session, through a shim that it started. Otherwise it becomes a guest, if it runs on
// this machine.
type Writer struct {
	PID  int    // of the client; 0: not known, or it runs elsewhere, and Origin has its mark
	Run  string // of the project that it writes to
	Home bool   // the client works in that project, so its session is used whatever run that session is in
	Name string // its name if it becomes a guest

	Party string // which of its agents writes
	Origin
}

// A guest is a session that the daemon keeps open for a client that has no
// connection in this run: its MCP server is not configured, or it writes to a
// project of another run. The session lasts as long as the client's process.
type guest struct {
	client process.Peer
	run    string
}

var (
	errNoClient = say(ErrNotFound, "the process of the client is not known, so nothing could tell when it ends")
	errNoShim   = say(ErrNotFound, "a client of another machine or container needs a session that lasts, and this one has none: have it start leasehold mcp there, with the same --server and token if there are any")

	// ErrComingBack is returned to a client that had a session before a restart
	// of the daemon and has not resumed it yet.
	ErrComingBack = errors.New("the client's session is about to be resumed; try again in a second")
)

// SessionFor returns the session that a write is attributed to: one of the
// client's own sessions, or that of a guest. If there are several, that of the
// party's own server is used, or else one in the run of the project. Of these it is
// that of the oldest process whose conversation has not been left: the client ends
// the others soon. If the caller is an actor, only
// sessions of that actor are considered, and if it is confined, it becomes no guest.
func (s *State) SessionFor(ctx context.Context, caller *Session, w Writer) (*Session, error) {
	operator := caller.Actor().Role == Operator
	confined, err := caller.Confined(ctx)
	if err != nil {
		return nil, err
	}
	list := s.partiesOf(w.PID, w.Mark)
	slices.SortStableFunc(list, func(a, b *party) int {
		return cmp.Or(
			last(!a.agents.isAlone(w.Party))-last(!b.agents.isAlone(w.Party)),
			last(a.actor.Run != w.Run)-last(b.actor.Run != w.Run),
			last(a.agents.left())-last(b.agents.left()))
	})
	for _, p := range list {
		switch {
		case !operator && p.actor.ID != caller.Actor().ID:
		case w.Home && !p.guest, p.actor.Run == w.Run:
			return &Session{party: p}, nil
		}
	}
	var client process.Peer
	if !confined {
		client = s.opts.Process(w.PID).Peer
	}
	switch {
	case !operator && !caller.vouched && w.Mark == "" && (w.Home || client.PID == 0), !operator && s.launchers.KeptOpen(caller.id):
		return caller, nil
	case s.comingBack(w.PID, w.Mark):
		return nil, ErrComingBack
	case w.Mark != "":
		return nil, errNoShim
	case client.PID == 0:
		return nil, errNoClient
	}
	return s.guestOf(ctx, client, w)
}

// Confined reports whether the session's hooks may act in the run of its actor only. So it
// is for a token that is shown over a network, and for a launched actor. Anybody else has
// connected to the socket, and could do so as the operator.
func (se *Session) Confined(ctx context.Context) (confined bool, err error) {
	switch {
	case se.actor.Role.Outside() || se.vouched: // the server that vouches for an actor has asked
		return false, nil
	case se.peer.Unseen():
		return true, nil
	}
	return confined, rows.View(engine.Peek(ctx), se.state.eng, func(tx engine.Tx) error {
		_, confined = work.Get(tx, se.actor.ID)
		return nil
	})
}

// SessionsOf returns the sessions of a client's process: those that connect
// from it, or from a process that it started, such as a shim.
func (s *State) SessionsOf(pid int) []*Session { return s.sessionsOf(pid, "") }

// SessionsMarked are the sessions of the process elsewhere that has the mark.
func (s *State) SessionsMarked(mark string) []*Session { return s.sessionsOf(0, mark) }

func (s *State) sessionsOf(pid int, mark string) (list []*Session) {
	for _, p := range s.partiesOf(pid, mark) {
		list = append(list, &Session{party: p})
	}
	return list
}

// OfActor returns all sessions of the session's actor.
func (se *Session) OfActor() (list []*Session) {
	se.state.mu.Lock()
	defer se.state.mu.Unlock()
	for _, p := range se.state.parties {
		if p.actor.ID == se.actor.ID && !p.ending {
			list = append(list, &Session{party: p})
		}
	}
	return list
}

// partiesOf returns the parties of a client's process: the oldest process
// first, guests last.
func (s *State) partiesOf(pid int, mark string) (list []*party) {
	if pid == 0 && mark == "" {
		return nil
	}
	s.mu.Lock()
	for _, p := range s.parties {
		marked := mark != "" && p.mark == mark
		if (marked || mark == "" && p.peer.PID != 0 && !p.peer.Elsewhere()) && !p.ending {
			list = append(list, p)
		}
	}
	s.mu.Unlock()
	list = slices.DeleteFunc(list, func(p *party) bool {
		return mark == "" && p.peer.PID != pid && (p.guest || !p.startedBy(pid))
	})
	slices.SortFunc(list, func(a, b *party) int {
		return cmp.Or(last(a.guest)-last(b.guest), a.peer.PID-b.peer.PID, slices.Compare(a.id[:], b.id[:]))
	})
	return list
}

// startedBy reports whether the running process pid is the parent of the party's process.
// Each hook asks this of all sessions, and reading hundreds of processes takes it longer
// than all else. So another process that was the parent before is not read again: a
// process has one parent until that one ends, and then the system's, not a client.
func (p *party) startedBy(pid int) bool {
	if was := p.parent.Load(); was != 0 && was != int64(pid) {
		return false
	}
	parent := p.state.starterOf(p.peer.PID)
	p.parent.Store(int64(parent))
	return parent == pid
}

// starterOf returns the pid of the process that started another one, or 0 if it is not
// known. An init is the parent of processes that it has not started. It is known by its
// name, or is process 1. But in a container, process 1 may be a client. A process in the
// session of process 1 was started by that client, or by what the client started. A process
// that outlives its starter mostly has another session.
func (s *State) starterOf(pid int) int {
	r := s.opts.Process(pid) // without a parent if it cannot be read now
	if process.Init(r.Parent) || r.Parent == 1 && r.Session != s.opts.Process(1).Session {
		return 0
	}
	return r.Parent
}

// last sorts what it is true of behind the rest.
func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

// comingBack reports whether the client has a session that has not been resumed
// yet.
func (s *State) comingBack(pid int, mark string) bool {
	for _, d := range s.waitingDetached() {
		if mark != "" && d.mark == mark {
			return true
		}
		if mark == "" && d.peer.PID != 0 && (d.peer.PID == pid || s.starterOf(d.peer.PID) == pid) {
			return true
		}
	}
	return false
}

// guestOf returns the session of a guest, which it creates if necessary.
func (s *State) guestOf(ctx context.Context, client process.Peer, w Writer) (*Session, error) {
	s.guests.mu.Lock() // one writer creates it, the others find it
	defer s.guests.mu.Unlock()
	key := guest{client, w.Run}
	if se := s.guests.open[key]; se != nil && se.Context().Err() == nil {
		return se, nil
	}
	origin := w.Origin
	origin.PID = client.PID
	record := sessionRecord{ID: uuid.New(), Peer: client, Origin: origin, Guest: true}
	was := s.leftBy(w.Run, origin, "")
	se, err := s.open(ctx, record, "", was, func(tx engine.Tx) (Actor, error) { return s.join(tx, w.Run, w.Name) })
	if err != nil {
		return nil, fmt.Errorf("join run %s for the client, process %d: %w", w.Run, client.PID, err)
	}
	s.holdGuestLocked(key, se)
	return se, nil
}

func (s *State) holdGuestLocked(key guest, se *Session) {
	s.guests.open[key] = se
	select {
	case s.guests.came <- struct{}{}:
	default: // tendGuests already has a wake-up pending
	}
}

// recoverGuest reopens the session of a guest whose process still lives.
func (s *State) recoverGuest(ctx context.Context, record sessionRecord) error {
	view := func(fn func(engine.Tx) error) error { return rows.View(ctx, s.eng, fn) }
	se, err := s.connectTo(record.ID, "", view, func(tx engine.Tx) (sessionRecord, Actor, error) {
		actor, _ := getActor(tx, record.Actor)
		return record, actor, nil
	})
	if err != nil {
		return err
	}
	s.guests.mu.Lock()
	defer s.guests.mu.Unlock()
	s.holdGuestLocked(guest{record.Peer, se.run.Name}, se)
	return nil
}

// errClientGone is the cause when the session of a guest ends.
var errClientGone = errors.New("the client's process has ended")

// tendGuests ends the sessions of guests whose process has ended. It checks
// once a second while there are any.
func (s *State) tendGuests(ctx context.Context) error {
	tick := time.NewTicker(detachedPoll)
	defer tick.Stop()
	for {
		var gone []*Session
		s.guests.mu.Lock()
		for key, se := range s.guests.open {
			switch {
			case se.Context().Err() != nil:
				delete(s.guests.open, key)
			case !s.opts.Alive(key.client):
				gone = append(gone, se)
				delete(s.guests.open, key)
			}
		}
		due := tick.C
		if len(s.guests.open) == 0 {
			due = nil
		}
		s.guests.mu.Unlock()
		for _, se := range gone {
			if err := se.Close(errClientGone); err != nil {
				return err
			}
		}
		select {
		case <-due:
		case <-s.guests.came:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
