package tools

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/kvstore"
)

type resentKey struct{}

// WithCall names the request that ctx belongs to, and says whether its client
// has sent it before.
func WithCall(ctx context.Context, c call.Call, resent bool) context.Context {
	ctx = call.With(ctx, c)
	if resent {
		ctx = context.WithValue(ctx, resentKey{}, true)
	}
	return ctx
}

// callOf is the call that ctx belongs to. Few tools ask.
func callOf(ctx context.Context) kvstore.Call {
	c := call.Of(ctx)
	if !c.Recorded() {
		return kvstore.Call{}
	}
	resent, _ := ctx.Value(resentKey{}).(bool)
	return kvstore.Call{ID: uuid.NewSHA1(c.Session, []byte(c.Name)), Resent: resent}
}
