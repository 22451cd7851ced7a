package dispatch

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// subAgents are those of a session that its client tells apart, as far as it has said
// so. What there is to tell of a lease of one of them is told to that one alone, and
// what there is to tell the session to its main agent. A party that nothing is known
// of, as a model may make them up, is the main agent: somebody has to be told.
//
// They are in the record of the session, so that the daemon after this one knows them
// when a client sends it again a call that was waiting, and tells each its own.
type subAgents struct {
	mu sync.Mutex
	agentsRecord
}

type agentsRecord struct {
	Known map[string]bool `json:",omitempty"` // whether it is a main agent
	Alone string          `json:",omitempty"` // the only one of the connection; "": it may be shared
	Uses  []toolUse       `json:",omitempty"` // oldest first
}

// A toolUse is a call of a sub-agent's that its client's hook has told of just before.
type toolUse struct{ ID, Party string }

const (
	maxSubAgents = 256 // that a session knows; the others are the main agent
	maxToolUses  = 64  // that a session remembers
)

// Heard says that one of the session's agents is there; main, that it is no other
// agent's sub-agent. Without a name it is the main one.
func (se *Session) Heard(ctx context.Context, name string, main bool) error {
	return se.note(ctx, name != "" && se.agents.hear(name, main))
}

// HeardAlone is Heard for an agent that has a connection of its own.
func (se *Session) HeardAlone(ctx context.Context, name string) error {
	return se.note(ctx, se.agents.hearAlone(name))
}

// UsesTool says which of the session's agents makes a use of a tool.
func (se *Session) UsesTool(ctx context.Context, id, name string) error {
	return se.note(ctx, se.agents.bind(id, name))
}

// UserOf is the agent that makes a use of a tool; "" if nobody has said.
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

// note writes down what is known of the session's agents, if that is news.
func (se *Session) note(ctx context.Context, news bool) error {
	if !news || se.actor.Role.Outside() {
		return nil
	}
	return rows.Update(se.local(ctx), se.state.eng, func(tx engine.Tx) error {
		record, ok := rows.Get[sessionRecord](tx, sessionKey(se.id))
		if !ok {
			return nil // it has ended, and its agents with it
		}
		record.Agents = se.agents.copy() // of now: the latest write has it all
		putSession(tx, record)
		return nil
	})
}

func (a *subAgents) copy() agentsRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return agentsRecord{maps.Clone(a.Known), a.Alone, slices.Clone(a.Uses)}
}

// recall takes up what an earlier daemon has written down.
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

// forget forgets an agent that has ended. What it was not told the main one is.
func (a *subAgents) forget(name string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, news = a.Known[name]
	delete(a.Known, name)
	return news
}

// tells reports whether what there is to tell of a party's lease, or with "" of the
// session, is told to a call of name.
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
