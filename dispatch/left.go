package dispatch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A client is the process that an agent runs in, in one run.
type client struct {
	run  string
	pid  int    // 0: it runs elsewhere, and has a mark
	mark string // see [Origin]
}

// A left is a session that has ended before its actor was ended. A client whose MCP server
// has died starts another, and its model goes on as if nothing had happened. If the client
// joins again, it becomes another actor, which is told what the first was not.
type left struct {
	actor  uuid.UUID
	at     time.Time // of the end, on the running clock
	secret []byte    // hash of the secret in its handle
}

// forgotten is told to a client that comes back with the handle of a session of which
// nothing is known: the state was removed or replaced under its client, or the session ended
// long ago.
const forgotten registry.Cause = "the daemon does not know your earlier session: the session has ended, or the daemon has another state now. " +
	"If you held leases or claims, they are lost: acquire the leases again before you touch what they guard, and drop the claimed tasks"

// leftTime is how long after the end of its connection a client is told, and keepLeft if
// it has the handle of the session that ended, which shows that it is the same agent.
// Claude Code in a terminal starts a server that has died only when its user says so, which
// takes minutes. Later, the process id may be another client's.
const (
	leftTime = 15 * time.Minute
	keepLeft = time.Hour // as long as its losses are kept
)

// maxLeft is how many of the sessions that ended last are always remembered.
const maxLeft = 4096

// noteLeft remembers a session that has ended. leaves says that its actor ends with it: its
// client is then remembered too, if the actor has losses to be told of.
func (s *State) noteLeft(tx engine.Tx, a Actor, session sessionRecord, leaves bool) {
	l := left{a.ID, tx.Now(), session.Secret}
	c := client{a.Run, session.Origin.PID, session.Origin.Mark}
	losses := 0
	if leaves && (c.pid != 0 || c.mark != "") {
		losses, _ = s.core.CountUntold(tx, registry.Holder{Actor: a.ID}, func(registry.Notice) bool { return true })
	}
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.leftLast) >= maxLeft {
			s.leftLast, s.leftBefore = make(map[uuid.UUID]left), s.leftLast
		}
		s.leftLast[session.ID] = l
		if losses > 0 {
			maps.DeleteFunc(s.left, func(_ client, o left) bool { return l.at.Sub(o.at) >= leftTime })
			s.left[c] = l
		}
	})
}

// A former says what a client is told that connects.
type former struct {
	actor  uuid.UUID // whose losses
	until  time.Time // on the running clock; zero: nobody's
	handle bool      // the client has the handle of another session, so it is told something
}

// leftBy returns what a client is told that connects now, with the handle of an earlier session
// or "". A client with another connection may have one for each of its sub-agents, so
// nobody knows which of them lost what the actor held, unless it has the handle.
func (s *State) leftBy(run string, o Origin, handle string) former {
	id, secret, has := openSecret(handleMark, handle)
	s.mu.Lock()
	l, ok := s.left[client{run, o.PID, o.Mark}]
	if has {
		if l, ok = s.leftLast[id]; !ok {
			l, ok = s.leftBefore[id]
		}
	}
	s.mu.Unlock()
	connected := func(p *party) bool { return !p.guest }
	switch {
	case has && ok && matches(l.secret, secret):
		return former{l.actor, l.at.Add(keepLeft), true}
	case has:
		return former{handle: true}
	case !ok || slices.ContainsFunc(s.partiesOf(o.PID, o.Mark), connected):
		return former{}
	}
	return former{actor: l.actor, until: l.at.Add(leftTime)}
}

// tellFormer tells an actor what its client lost in an earlier session. If that was a session
// of the same actor, it is told anyway.
func (s *State) tellFormer(tx engine.Tx, was former, actor uuid.UUID) {
	switch {
	case !tx.Now().Before(was.until):
		if was.handle {
			s.core.Forgot(tx, actor, forgotten)
		}
	case was.actor != actor:
		s.core.PassOn(tx, was.actor, actor)
	}
}

// tellRestored tells all living actors of a state that was a copy until now. Their leases in
// the copy are valid, but nobody knows what each of them was granted later.
func (s *State) tellRestored(tx engine.Tx) {
	cause := registry.Cause(fmt.Sprintf("the daemon went on with a copy of its state that was made at %s: what was granted, written or queued since then may be lost. "+
		"See what you hold before you touch what it guards", s.restored.Format(time.RFC3339)))
	for row := range tx.Scan(actorPrefix) {
		if a, ok := rows.Decode[Actor](tx, row); ok && !a.Ended() {
			s.core.Forgot(tx, a.ID, cause)
		}
	}
}

// A dismissal is the end of an actor whose client may still run. The actor's session is
// gone, so the model has to call a tool to hear of it. It is told by the hooks of its
// client, each of its agents once.
type dismissal struct {
	err   *EndedError
	agent string // the only one that is told; "": all
	until time.Time
	told  map[string]bool // by agent
}

// A toldEnd is a dismissal that an agent was told of.
type toldEnd struct {
	of    *dismissal
	party string
}

// noteDismissed remembers for the hooks of a client that its actor was ended. Whoever has
// been quiet for longer than quietSubAgent is told by its next call of a tool only.
func (s *State) noteDismissed(tx engine.Tx, a Actor, record sessionRecord) {
	c := client{pid: record.Origin.PID, mark: record.Origin.Mark}
	if c.pid == 0 && c.mark == "" {
		return
	}
	now := tx.Now()
	d := &dismissal{a.endedError(), record.Agents.Alone, now.Add(quietSubAgent), make(map[string]bool)}
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.dismissed, func(_ client, list []*dismissal) bool { return now.After(list[len(list)-1].until) })
		s.dismissed[c] = append(slices.DeleteFunc(s.dismissed[c], func(o *dismissal) bool {
			same := o.agent == d.agent && o.err.Run == d.err.Run && o.err.Path == d.err.Path && o.err.At.Equal(d.err.At) // of another session
			return same || now.After(o.until)
		}), d)
	})
}

// TakeDismissals returns the ends of a client's actors that an agent of the client was not
// told of, for an answer of se, an operator's session. If nobody reads the answer, they are
// told again. A client that has connected as another actor since is told nothing.
func (se *Session) TakeDismissals(ctx context.Context, pid int, mark, agent string) (list []*EndedError, err error) {
	now, err := se.now(ctx)
	if err != nil {
		return nil, err
	}
	s := se.state
	again := make(map[string]bool) // by run
	for _, p := range s.partiesOf(pid, mark) {
		again[p.actor.Run] = again[p.actor.Run] || !p.guest && p.agents.isAlone("")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dismissed[client{pid: pid, mark: mark}] {
		if now.After(d.until) || d.told[agent] || d.agent != "" && d.agent != agent || d.agent == "" && again[d.err.Run] {
			continue
		}
		d.told[agent] = true
		se.toldOf = append(se.toldOf, toldEnd{d, agent})
		list = append(list, d.err)
	}
	return list, nil
}
