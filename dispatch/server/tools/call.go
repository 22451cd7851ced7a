package tools

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
)

// ResentMark is the field of a request's _meta by which the shim says that the
// daemon may have had it before.
const ResentMark = "leasehold/resent"

// CallMark is the field of a request's _meta by which a client names a call, so
// that it can be sent again over another connection of its session, where ids
// of requests begin anew.
const CallMark = "leasehold/call"

type callKey struct{}

// A sessionCall is a request of a session.
type sessionCall struct {
	session uuid.UUID
	name    string
	resent  bool
}

// WithCall names the request that ctx belongs to, by its id or by its
// [CallMark], uniquely in its session, also over a restart of the daemon; and
// says whether it has the [ResentMark].
func WithCall(ctx context.Context, session uuid.UUID, name string, resent bool) context.Context {
	return context.WithValue(ctx, callKey{}, sessionCall{session, name, resent})
}

// callOf is the call that ctx belongs to. Few tools ask.
func callOf(ctx context.Context) kvstore.Call {
	call, ok := ctx.Value(callKey{}).(sessionCall)
	if !ok {
		return kvstore.Call{}
	}
	return kvstore.Call{ID: uuid.NewSHA1(call.session, []byte(call.name)), Resent: call.resent}
}
