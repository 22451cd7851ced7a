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

// CallMark is the field of a request's _meta by which a client names a call, so
// that it can be sent again over another connection of its session, where ids
// of requests begin anew.
const CallMark = "leasehold/call"

type callKey struct{}

// A sessionCall is a request of a session.
type sessionCall struct {
	session uuid.UUID
	kvstore.Call
}

// WithCall names the request that ctx belongs to: id is unique in its session,
// also over a restart of the daemon, unless the request has a [CallMark].
func WithCall(ctx context.Context, session uuid.UUID, id string) context.Context {
	return context.WithValue(ctx, callKey{}, sessionCall{session, kvstore.Call{ID: uuid.NewSHA1(session, []byte(id))}})
}

// withMarks notes what a request says of itself: its name, and whether it was
// sent before.
func withMarks(ctx context.Context, request mcp.CallToolRequest) context.Context {
	call, ok := ctx.Value(callKey{}).(sessionCall)
	meta := request.Params.Meta
	if !ok || meta == nil {
		return ctx
	}
	if name, ok := meta.AdditionalFields[CallMark].(string); ok {
		call.ID = uuid.NewSHA1(call.session, []byte("call "+name))
	}
	call.Resent = meta.AdditionalFields[ResentMark] == true
	return context.WithValue(ctx, callKey{}, call)
}

func callOf(ctx context.Context) kvstore.Call {
	call, _ := ctx.Value(callKey{}).(sessionCall)
	return call.Call
}
