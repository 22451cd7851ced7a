package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// subAgents are the agents of a session that its client distinguishes. A notice
// about a lease of one of these agents is told to that agent only. A notice for
// the session is told to its main agent. A party that is not registered counts
// as the main agent, because a model may make up party names and somebody has
// to be told.
//
// The agents are part of the session's record. After a restart of the daemon, a
// repeated call that was waiting is therefore still attributed to the right
// agent.
type subAgents struct {
	mu sync.Mutex
	agentsRecord
}

type agentsRecord struct {
	Known map[string]bool `json:",omitempty"` // by name: whether it is a main agent
	Alone string          `json:",omitempty"` // the only agent of the connection; "": there may be several
	Uses  []toolUse       `json:",omitempty"` // oldest first
}

// A toolUse is a tool call of an agent, announced by the hook of the client.
type toolUse struct{ ID, Party string }

const (
	maxSubAgents = 256 // in one session; further ones count as the main agent
	maxToolUses  = 64  // remembered in one session
)

// Heard registers one of the session's agents. main says that it is not a
// sub-agent of another one. An empty name is the main agent, which needs no
// registration.
func (se *Session) Heard(ctx context.Context, name string, main bool) error {
	return se.note(ctx, name != "" && se.agents.hear(name, main))
}

// HeardAlone is Heard for an agent that has its own connection.
func (se *Session) HeardAlone(ctx context.Context, name string) error {
	return se.note(ctx, se.agents.hearAlone(name))
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

func (a *subAgents) hear(name string, main bool) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	was, known := a.Known[name]
	if known && was == main || !known && len(a.Known) == maxSubAgents {
		return false
	}
	if a.Known == nil {
		a.Known = make(map[string]bool)
	}
	a.Known[name] = main
	return true
}

func (a *subAgents) hearAlone(name string) (news bool) {
	news = a.hear(name, true)
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

// forget removes an agent that has ended. The main agent is told what it was
// not.
func (a *subAgents) forget(name string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, news = a.Known[name]
	delete(a.Known, name)
	return news
}

// tells reports whether a call of agent name is told notices about a lease of
// party or, if party is "", notices for the session.
func (a *subAgents) tells(name, party string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name == party {
		return true
	}
	if _, another := a.Known[party]; another {
		return false
	}
	main, known := a.Known[name]
	if a.Alone != "" {
		main = name == a.Alone
	}
	return main || !known
}
