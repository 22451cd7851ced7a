package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// subAgents are the agents of a session that its client distinguishes. A notice
// about a lease of one of these agents is told to that agent only. A notice for
// the session is told to its main agent. A party that is not registered counts
// as the main agent, because a model may make up party names and somebody has
// to be told.
//
// A sub-agent that has been quiet for quietSubAgent counts as ended, because its
// client may have failed to report the end. It counts again once it is heard from.
//
// The agents are part of the session's record. After a restart of the daemon, a
// repeated call that was waiting is therefore still attributed to the right
// agent.
type subAgents struct {
	mu sync.Mutex
	agentsRecord
	heard map[string]time.Time                         // when each of Known was last, as far as this daemon has heard it
	waits map[string]map[*context.CancelCauseFunc]bool // by name: what ends its calls that wait
	rest  map[string]bool                              // main agents whose turn is over, and that were not heard from since
	drain map[string]time.Time                         // when each agent was told that the run ends, registered or not
}

type agentsRecord struct {
	Known map[string]bool `json:",omitempty"` // by name: whether it is a main agent
	Alone string          `json:",omitempty"` // the only agent of the connection; "": there may be several
	Uses  []toolUse       `json:",omitempty"` // oldest first
}

// A toolUse is a tool call of an agent, announced by the hook of the client.
type toolUse struct{ ID, Party string }

const (
	// quietSubAgent is longer than clients let a tool run, which is ten minutes.
	quietSubAgent = 15 * time.Minute

	maxSubAgents = 256 // in one session; further ones count as the main agent
	maxToolUses  = 64  // remembered in one session
)

// Heard registers one of the session's agents. main says that it is not a
// sub-agent of another one. An empty name is the main agent, which needs no
// registration.
func (se *Session) Heard(ctx context.Context, name string, main bool) error {
	if name == "" {
		return nil
	}
	now, err := se.now(ctx)
	if err != nil {
		return err
	}
	return se.note(ctx, se.agents.hear(name, main, now))
}

// HeardAlone is Heard for an agent that has its own connection.
func (se *Session) HeardAlone(ctx context.Context, name string) error {
	now, err := se.now(ctx)
	if err != nil {
		return err
	}
	return se.note(ctx, se.agents.hearAlone(name, now))
}

// Rest records that the turn of a main agent is over. It rests until it is heard from
// again. A client may have several main agents: one for each conversation that its user
// has begun. If one of them rests, others may change the files that it has changed.
func (se *Session) Rest(name string) {
	se.agents.mu.Lock()
	defer se.agents.mu.Unlock()
	se.agents.restLocked(name)
}

// Begin records that the user of a client, whose sessions these are, has begun a
// conversation with a main agent. The other main agents rest, because the user has left
// them. A client that starts a server for each conversation has started one for this: if
// only one of the sessions has no agent yet, it is the agent's.
func (s *State) Begin(ctx context.Context, sessions []*Session, name string) error {
	var free []*Session
	for _, se := range sessions {
		se.agents.restOthers(name)
		switch {
		case se.agents.isAlone(name):
			return nil
		case !se.Guest() && se.agents.isAlone(""):
			free = append(free, se)
		}
	}
	if len(free) != 1 {
		return nil
	}
	return free[0].HeardAlone(ctx, name)
}

// UsesTool records which of the session's agents makes a tool call.
func (se *Session) UsesTool(ctx context.Context, id, name string) error {
	return se.note(ctx, se.agents.bind(id, name))
}

// UserOf returns the agent that makes a tool call; "" if it was not announced.
func (se *Session) UserOf(id string) string {
	if id == "" {
		return ""
	}
	se.agents.mu.Lock()
	defer se.agents.mu.Unlock()
	if i := slices.IndexFunc(se.agents.Uses, func(u toolUse) bool { return u.ID == id }); i >= 0 {
		return se.agents.Uses[i].Party
	}
	return ""
}

// now is the time by which quiet is measured.
func (se *Session) now(ctx context.Context) (now time.Time, err error) {
	err = se.state.eng.View(ctx, func(tx engine.Tx) error {
		now = tx.Now()
		return nil
	})
	return now, err
}

// note stores the session's agents if they have changed.
func (se *Session) note(ctx context.Context, news bool) error {
	if !news || se.actor.Role.Outside() {
		return nil
	}
	return rows.Update(se.local(ctx), se.state.eng, func(tx engine.Tx) error {
		record, ok := rows.Get[sessionRecord](tx, sessionKey(se.id))
		if !ok {
			return nil // it has ended, and its agents with it
		}
		record.Agents = se.agents.copy() // read here, so the latest write includes all changes
		putSession(tx, record)
		return nil
	})
}

func (a *subAgents) copy() agentsRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return agentsRecord{maps.Clone(a.Known), a.Alone, slices.Clone(a.Uses)}
}

// recall restores agents from a record.
func (a *subAgents) recall(record agentsRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.agentsRecord = record
}

func (a *subAgents) hear(name string, main bool, now time.Time) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, known := a.Known[name]
	if !known && len(a.Known) >= maxSubAgents {
		for other := range a.Known {
			if a.isQuietLocked(other, now) {
				delete(a.Known, other)
				delete(a.heard, other)
			}
		}
		if len(a.Known) >= maxSubAgents {
			return false
		}
	}
	a.hearLocked(name, now)
	if known && was == main {
		return false
	}
	if a.Known == nil {
		a.Known = make(map[string]bool)
	}
	a.Known[name] = main
	return true
}

func (a *subAgents) hearLocked(name string, now time.Time) {
	if a.heard == nil {
		a.heard = make(map[string]time.Time)
	}
	a.heard[name] = now
	delete(a.rest, name)
}

func (a *subAgents) restLocked(name string) {
	if !a.Known[name] {
		return // a sub-agent ends, and never rests
	}
	if a.rest == nil {
		a.rest = make(map[string]bool)
	}
	a.rest[name] = true
}

func (a *subAgents) restOthers(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other := range a.Known {
		if other != name {
			a.restLocked(other)
		}
	}
}

// isAlone reports whether a session is that of one agent alone; with "", whether it
// may be that of several.
func (a *subAgents) isAlone(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Alone == name
}

// left reports whether a session is that of one agent alone, and that agent rests.
func (a *subAgents) left() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rest[a.Alone]
}

// known returns the name of a registered agent, and "" for any other, which counts as
// the main agent.
func (a *subAgents) known(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.Known[name]; !known {
		return ""
	}
	return name
}

// apart reports whether two names are those of two agents for sure. A sub-agent may have
// two: its client's for it, and one that it has made up, because we ask it to.
func (a *subAgents) apart(one, other string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, knownOne := a.Known[one]
	_, knownOther := a.Known[other]
	return one == "" || other == "" || knownOne == knownOther
}

func (a *subAgents) rests(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rest[name]
}

func (a *subAgents) isMain(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Known[name]
}

// isQuietLocked reports whether a sub-agent has not been heard from for too long. One
// that an earlier daemon knew has been heard from when this one first looks.
func (a *subAgents) isQuietLocked(name string, now time.Time) bool {
	if main, known := a.Known[name]; main || !known {
		return false
	}
	last, ok := a.heard[name]
	if !ok {
		a.hearLocked(name, now)
		return false
	}
	return now.Sub(last) > quietSubAgent
}

func (a *subAgents) hearAlone(name string, now time.Time) (news bool) {
	news = a.hear(name, true, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Alone == "" {
		a.Alone, news = name, true
	}
	return news
}

func (a *subAgents) bind(id, name string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	use := toolUse{id, name}
	if i := slices.IndexFunc(a.Uses, func(u toolUse) bool { return u.ID == id }); i >= 0 {
		news, a.Uses[i] = a.Uses[i] != use, use
		return news
	}
	if len(a.Uses) == maxToolUses {
		a.Uses = slices.Delete(a.Uses, 0, 1)
	}
	a.Uses = append(a.Uses, use)
	return true
}

// wait returns a context for a call of an agent that waits. It also ends when the
// agent does.
func (a *subAgents) wait(ctx context.Context, name string) (context.Context, func()) {
	if name == "" {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits == nil {
		a.waits = make(map[string]map[*context.CancelCauseFunc]bool)
	}
	if a.waits[name] == nil {
		a.waits[name] = make(map[*context.CancelCauseFunc]bool)
	}
	a.waits[name][&end] = true
	return ctx, func() {
		a.mu.Lock()
		if delete(a.waits[name], &end); len(a.waits[name]) == 0 {
			delete(a.waits, name)
		}
		a.mu.Unlock()
		end(nil)
	}
}

// endWaits ends the calls of an agent that wait.
func (a *subAgents) endWaits(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for end := range a.waits[name] {
		(*end)(ErrAgentEnded)
	}
}

// forget removes an agent that has ended. The main agent is told what it was
// not.
func (a *subAgents) forget(name string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, news = a.Known[name]
	delete(a.Known, name)
	delete(a.heard, name)
	delete(a.rest, name)
	delete(a.drain, name)
	return news
}

// noteDrain notes that an agent is told now that the run ends. It reports false if
// the agent was told before. An agent that is not registered is told, too, because a
// drain is news for everybody; too many names are one agent.
func (a *subAgents) noteDrain(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.drain) >= maxSubAgents {
		name = ""
	}
	if _, told := a.drain[name]; told {
		return false
	}
	if a.drain == nil {
		a.drain = make(map[string]time.Time)
	}
	a.drain[name] = now
	return true
}

// retellDrain forgets who was told lately that the run ends.
func (a *subAgents) retellDrain(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.drain, func(_ string, told time.Time) bool { return now.Sub(told) < registry.Retold })
}

// forgetDrain forgets who was told that the run ends.
func (a *subAgents) forgetDrain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drain = nil
}

// tells returns a function that reports whether a call of agent name is told notices
// about a lease of a party or, if the party is "", notices for the session. The agent
// counts as heard from now.
func (a *subAgents) tells(name string, now time.Time) func(party string) bool {
	a.mu.Lock()
	if _, known := a.Known[name]; known {
		a.hearLocked(name, now)
	}
	a.mu.Unlock()
	return func(party string) bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		if name == party {
			return true
		}
		if _, another := a.Known[party]; another && !a.isQuietLocked(party, now) {
			return false
		}
		main, known := a.Known[name]
		if a.Alone != "" {
			main = name == a.Alone
		}
		return main || !known
	}
}
