package tools

import (
	"context"

	"github.com/google/uuid"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/kvstore"
)

// ResentMark is the field of a request's _meta by which the shim says that the
// daemon may have had it before.
const ResentMark = "leasehold/resent"

type callKey struct{}

// WithCall names the request that ctx belongs to: id is unique in its session,
// also over a restart of the daemon.
func WithCall(ctx context.Context, session uuid.UUID, id string) context.Context {
	return context.WithValue(ctx, callKey{}, kvstore.Call{ID: uuid.NewSHA1(session, []byte(id))})
}

// withResent notes whether a named request was sent again.
func withResent(ctx context.Context, request mcp.CallToolRequest) context.Context {
	call := callOf(ctx)
	if meta := request.Params.Meta; call.ID != uuid.Nil && meta != nil && meta.AdditionalFields[ResentMark] == true {
		call.Resent = true
		return context.WithValue(ctx, callKey{}, call)
	}
	return ctx
}

func callOf(ctx context.Context) kvstore.Call {
	call, _ := ctx.Value(callKey{}).(kvstore.Call)
	return call
}
