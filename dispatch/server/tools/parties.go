package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// maxParty bounds the name of a party, and the id by which a client names one
// use of a tool, in bytes.
const maxParty = 128

// An asArg says for which of several sub-agents of one session a call is.
type asArg struct {
	As string `json:"as,omitempty" doc:"which of your sub-agents asks" min:"1" max:"128"`
}

// asName is the argument that says which sub-agent calls. Every tool takes it, as a
// client's plugin may give it to all of them. Those that do for one sub-agent what they
// do not for another have it in their schemas.
const asName = "as"

// withAs says for whom a call is, if its arguments do.
func withAs(ctx context.Context, given Arguments) context.Context {
	for name, value := range wire.Members(given) {
		if as, ok := wire.TextOf(value); ok && string(name) == asName {
			return WithParty(ctx, PartyName(as))
		}
	}
	return ctx
}

// party is whom the call is for: as it says, or as its client's metadata does.
func (a asArg) party(ctx context.Context) string { return cmp.Or(a.As, caller(ctx)) }

// caller is which of the session's sub-agents calls; "" if nothing says.
func caller(ctx context.Context) string {
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
