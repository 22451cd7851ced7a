package tools

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/kvstore"
)

type callKey struct{}

// A sessionCall is a request of a session.
type sessionCall struct {
	session uuid.UUID
	name    string
	resent  bool
}

// WithCall names the request that ctx belongs to, by its id or by its
// [wire.CallMark], uniquely in its session, also over a restart of the daemon; and
// says whether it has the [wire.ResentMark].
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
