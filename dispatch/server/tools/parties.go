package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/registry"
)

// maxParty bounds the name of a party, and the id by which a client names one
// use of a tool, in bytes.
const maxParty = 128

// An asArg says for which of several sub-agents of one session a call is.
type asArg struct {
	As string `json:"as,omitempty" doc:"which of your sub-agents asks" min:"1" max:"128"`
}

// party is whom the call is for: as it says, or as its client's metadata does.
func (a asArg) party(ctx context.Context) string {
	if a.As != "" {
		return a.As
	}
	party, _ := ctx.Value(partyKey{}).(string)
	return party
}

// PartyName is the name of a party as a client's metadata has it, of any
// length.
func PartyName(id string) string {
	if len(id) <= maxParty && registry.CheckParty(id) == nil {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

type partyKey struct{}

// WithParty says for whom a call is that does not say so itself.
func WithParty(ctx context.Context, party string) context.Context {
	if party == "" {
		return ctx
	}
	return context.WithValue(ctx, partyKey{}, party)
}

// Parties knows which sub-agent makes which use of a tool, where a client's
// hook has said so before the call. The zero Parties is ready.
type Parties struct {
	mu       sync.Mutex
	sessions map[uuid.UUID]*toolUses
}

// toolUses are the last ones of a session that a hook has told of.
type toolUses struct {
	party map[string]string // by the id of the use
	order []string          // oldest first
}

// maxToolUses is how many uses of a session are remembered. A hook tells of a
// use just before it is made.
const maxToolUses = 256

// Of is the party that makes a use of a tool; "" if no hook has said.
func (p *Parties) Of(session uuid.UUID, toolUse string) string {
	if toolUse == "" {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if uses := p.sessions[session]; uses != nil {
		return uses.party[toolUse]
	}
	return ""
}

func (p *Parties) bind(session uuid.UUID, toolUse, party string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uses := p.sessions[session]
	if uses == nil {
		uses = &toolUses{party: make(map[string]string)}
		if p.sessions == nil {
			p.sessions = make(map[uuid.UUID]*toolUses)
		}
		p.sessions[session] = uses
	}
	if _, known := uses.party[toolUse]; !known {
		if len(uses.order) == maxToolUses {
			delete(uses.party, uses.order[0])
			uses.order = slices.Delete(uses.order, 0, 1)
		}
		uses.order = append(uses.order, toolUse)
	}
	uses.party[toolUse] = party
}

// Forget drops what is known of a session that has ended.
func (p *Parties) Forget(session uuid.UUID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, session)
}

// Hooks are the tools of the clients' hooks. Agents can call them too, and do
// not see them.
func Hooks(state *dispatch.State, parties *Parties) []Tool {
	h := &hooks{state, parties}
	return []Tool{
		tool("hook_tool_use", "Say who uses a tool",
			"Say which sub-agent makes a use of a tool, before it is made. Of your own session, or as an operator of those whose client is the process pid.",
			Effect{Idempotent: true}, h.toolUse),
		tool("hook_party_end", "Say that a sub-agent has ended",
			"Release what a sub-agent held and take it out of every line. Of your own session, or as an operator of those whose client is the process pid.",
			Effect{Idempotent: true}, h.partyEnd),
		tool("hook_notices", "Take what a client is to be told",
			"Losses of leases, messages and what else is not told yet, which counts as told from then on. Of your own session, or as an operator of those whose client is the process pid.",
			Effect{}, h.takeNotices),
	}
}

type hooks struct {
	state   *dispatch.State
	parties *Parties
}

// A hookArg says whose hook it is.
type hookArg struct {
	Party string `json:"party" doc:"the sub-agent, by the id that its client gave it" min:"1" max:"128"`
	pidArg
}

type pidArg struct {
	PID int `json:"pid,omitempty" doc:"as an operator: the client's process, or its shim's" min:"2" max:"4194304"`
}

// sessions are those that the hook speaks of.
func (a pidArg) sessions(h *hooks, se *dispatch.Session) ([]uuid.UUID, error) {
	if se.Actor().Role != dispatch.Operator {
		if a.PID != 0 {
			return nil, &registry.ArgumentError{Argument: "pid", Problem: "is for operators; your hooks speak of your own session"}
		}
		return []uuid.UUID{se.ID()}, nil
	}
	if a.PID == 0 {
		return nil, &registry.ArgumentError{Argument: "pid", Problem: "must be given by an operator: the client's process"}
	}
	return h.state.SessionsOf(a.PID), nil
}

type toolUseArgs struct {
	hookArg
	ToolUse string `json:"tool_use_id" doc:"as the client names it in the call's _meta" min:"1" max:"128"`
}

type hooked struct {
	Sessions int `json:"sessions" jsonschema:"how many sessions this is about"`
}

func (n hooked) Text() string { return fmt.Sprintf("noted for %d sessions", n.Sessions) }

func (h *hooks) toolUse(_ context.Context, se *dispatch.Session, a toolUseArgs) (hooked, error) {
	ids, err := a.sessions(h, se)
	if err != nil {
		return hooked{}, err
	}
	for _, id := range ids {
		h.parties.bind(id, a.ToolUse, PartyName(a.Party))
	}
	return hooked{len(ids)}, nil
}

func (h *hooks) partyEnd(ctx context.Context, se *dispatch.Session, a hookArg) (hooked, error) {
	ids, err := a.sessions(h, se)
	if err != nil {
		return hooked{}, err
	}
	for _, id := range ids {
		if err := h.state.EndParty(ctx, id, PartyName(a.Party)); err != nil {
			return hooked{}, err
		}
	}
	return hooked{len(ids)}, nil
}

type noticeList struct {
	Notices []Notice `json:"notices"`
	Line    string   `json:"text" jsonschema:"the same for the model, in a line; empty if there is nothing"`
}

func (l noticeList) Text() string { return cmp.Or(l.Line, "nothing new") }

// takeNotices is for the answer of a hook, which the client gives its model before
// its next step. A session that has ended has nobody to tell.
func (h *hooks) takeNotices(ctx context.Context, se *dispatch.Session, a pidArg) (noticeList, error) {
	ids, err := a.sessions(h, se)
	list := noticeList{Notices: []Notice{}}
	for _, id := range ids {
		if of, err := se.OnBehalf(id); err == nil {
			list.Notices = append(list.Notices, takeNotices(ctx, of)...)
		}
	}
	if len(list.Notices) > 0 {
		list.Line = "Leasehold: " + noticeText(list.Notices)
	}
	return list, err
}
