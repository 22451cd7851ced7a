package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/google/uuid"

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
