package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// maxParty is the greatest length in bytes of the name of a party, and of the
// id of a tool call.
const maxParty = 128

// An asArg says which sub-agent of a session makes a call.
type asArg struct {
	As string `json:"as,omitempty" doc:"which of your sub-agents asks" min:"1" max:"128"`
}

// asName is the argument that says which sub-agent calls. Every tool accepts
// it, because a client's plugin may add it to all calls. Only tools that take or
// extend something for the sub-agent have it in their schemas.
const asName = "as"

// withAs returns a context with the party that the arguments of a call name, if
// any.
func withAs(ctx context.Context, given Arguments) context.Context {
	for name, value := range wire.Members(given) {
		if as, ok := wire.TextOf(value); ok && string(name) == asName {
			return WithParty(ctx, PartyName(as))
		}
	}
	return ctx
}

// party returns the party of the call: from this argument, or else from ctx.
func (a asArg) party(ctx context.Context) string { return cmp.Or(a.As, caller(ctx)) }

// caller returns the sub-agent of the session that calls; "" if it is unknown.
func caller(ctx context.Context) string {
	party, _ := ctx.Value(partyKey{}).(string)
	return party
}

// PartyName returns the name of the party for an id from a client's metadata,
// which may have any length.
func PartyName(id string) string {
	if len(id) <= maxParty && registry.CheckParty(id) == nil {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

type partyKey struct{}

// WithParty sets the party of a call that does not name one itself.
func WithParty(ctx context.Context, party string) context.Context {
	if party == "" {
		return ctx
	}
	return context.WithValue(ctx, partyKey{}, party)
}
