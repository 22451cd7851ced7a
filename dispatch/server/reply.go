package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// handle runs a tool for a call and makes the reply: the answer or the
// refusal, with the losses that the session has not been told of.
func (t Tool) handle(ctx context.Context, request mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	se := sessionFrom(ctx)
	if se == nil {
		return refusedResult(dispatch.ErrUnauthenticated, nil), nil
	}
	a, err := t.call(ctx, se, rawArguments(request))
	news := takeNotices(ctx, se)
	if err != nil {
		return refusedResult(err, news), nil
	}
	return reply(mustJSON(a), a.Text(), news), nil
}

// rawArguments are the arguments as they came, where mcp-go kept them.
func rawArguments(request mcp.CallToolRequest) json.RawMessage {
	if len(request.Params.RawArguments) > 0 {
		return request.Params.RawArguments
	}
	if request.Params.Arguments == nil {
		return nil
	}
	return mustJSON(request.Params.Arguments)
}

// reply makes a result of an object and its line of text.
func reply(object json.RawMessage, text string, news []notice) *mcp.CallToolResult {
	if len(news) > 0 {
		object = withNotices(object, news)
		text += "; notice: " + noticeText(news)
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{mcp.NewTextContent(text)},
		StructuredContent: object,
	}
}

// refusedResult makes a result of an error that the agent can act on.
func refusedResult(err error, news []notice) *mcp.CallToolResult {
	r := refusalOf(err)
	object := map[string]any{"code": r.code, "message": r.message}
	for k, v := range r.data {
		object[k] = v
	}
	result := reply(mustJSON(object), r.message, news)
	result.IsError = true
	return result
}

// withNotices adds notices to an object.
func withNotices(object json.RawMessage, news []notice) json.RawMessage {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		panic(fmt.Sprintf("server: an answer that is no object: %v", err))
	}
	m["notices"] = mustJSON(news)
	return mustJSON(m)
}

// A notice tells of a lease that the session no longer holds.
type notice struct {
	Name         string    `json:"name,omitempty" jsonschema:"the layer's lease that was lost"`
	Key          string    `json:"key,omitempty" jsonschema:"the run's lease that was lost"`
	Scope        string    `json:"scope" jsonschema:"layer or run"`
	LeaseID      string    `json:"lease_id"`
	Token        uint64    `json:"token" jsonschema:"its fencing token, refused from now on"`
	Reason       string    `json:"reason"`
	At           time.Time `json:"at"`
	SupersededBy string    `json:"superseded_by,omitempty" jsonschema:"path of the actor it went to"`
}

func noticeOf(l registry.Lost) notice {
	n := notice{
		Scope: scopeWord(l.Scope), LeaseID: l.LeaseID.String(), Token: l.Token,
		Reason: l.Reason, At: l.At, SupersededBy: l.SupersededBy,
	}
	if n.Scope == string(dispatch.LayerScope) {
		n.Name = l.Key
	} else {
		n.Key = l.Key
	}
	return n
}

// takeNotices reads what the session is to be told. If that fails, the next
// answer tells it.
func takeNotices(ctx context.Context, se *dispatch.Session) []notice {
	if se.Actor().Role == dispatch.Operator {
		return nil
	}
	lost, err := se.TakeLosses(ctx)
	if err != nil {
		return nil
	}
	var news []notice
	for _, l := range lost {
		news = append(news, noticeOf(l))
	}
	return news
}

func noticeText(news []notice) string {
	var texts []string
	for _, n := range news {
		s := fmt.Sprintf("you lost lease %q (%s)", n.Name+n.Key, n.Reason)
		if n.SupersededBy != "" {
			s += ", now held by " + n.SupersededBy
		}
		texts = append(texts, s)
	}
	return strings.Join(texts, "; ")
}

// scopeWord is what the contract calls a scope of the registry.
func scopeWord(scope string) string {
	word, _, _ := strings.Cut(scope, ":")
	return word
}

// A refusal is an error in the words of the contract.
type refusal struct {
	code    string
	message string
	data    map[string]any
}

// refusalOf is the one place where errors become codes.
func refusalOf(err error) refusal {
	r := refusal{message: err.Error(), data: map[string]any{}}
	var (
		wait      *registry.WaitError
		held      *registry.HeldError
		lost      *registry.LostError
		limit     *registry.LimitError
		argument  *registry.ArgumentError
		version   *kvstore.VersionError
		noAccess  *layer.ForbiddenError
		peer      *layer.UnknownPeerError
		forbidden *dispatch.ForbiddenError
	)
	switch {
	case errors.As(err, &wait):
		r.code, r.data = "WAIT_TIMEOUT", heldData(&wait.HeldError)
		r.data["position"], r.data["ticket"] = wait.Position, wait.Ticket
	case errors.As(err, &held):
		r.code, r.data = "LEASE_HELD", heldData(held)
	case errors.As(err, &lost):
		r.code = "LEASE_LOST"
		r.data["reason"], r.data["at"] = lost.Reason, lost.At
		if lost.SupersededBy != "" {
			r.data["superseded_by"] = lost.SupersededBy
		}
	case errors.Is(err, registry.ErrNotHolder):
		r.code = "NOT_HOLDER"
	case errors.Is(err, registry.ErrRequestIDReused):
		r.code = "REQUEST_ID_REUSED"
	case errors.As(err, &limit):
		r.code = "LIMIT"
		r.data["which"], r.data["max"] = limit.Which, limit.Max
	case errors.As(err, &argument):
		r.code = "INVALID_ARGUMENT"
		r.data["argument"] = argument.Argument
	case errors.As(err, &version):
		r.code = "VERSION_MISMATCH"
		r.data["version"] = version.Version
	case errors.As(err, &noAccess), errors.As(err, &forbidden):
		r.code = "FORBIDDEN"
	case errors.As(err, &peer), errors.Is(err, dispatch.ErrNotFound):
		r.code = "NOT_FOUND"
	case errors.Is(err, dispatch.ErrExists):
		r.code = "INVALID_ARGUMENT"
		r.data["argument"] = "name"
	case errors.Is(err, dispatch.ErrUnauthenticated), errors.Is(err, registry.ErrSessionEnded):
		r.code = "UNAUTHENTICATED"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		r.code = "UNAVAILABLE"
	case errors.Is(err, engine.ErrFailed), errors.Is(err, engine.ErrClosed):
		r.code = "UNAVAILABLE"
		r.message = "the daemon cannot write its state: restart it, then try again (" + err.Error() + ")"
	default:
		r.code = "UNAVAILABLE"
	}
	return r
}

func heldData(h *registry.HeldError) map[string]any {
	return map[string]any{
		"key": h.Key, "scope": scopeWord(h.Scope), "holder": holderOf(h.Holder),
		"expires_in_ms": h.ExpiresIn.Milliseconds(), "waiters": h.Waiters,
	}
}

type holder struct {
	ActorID string `json:"actor_id"`
	Path    string `json:"path" jsonschema:"names below the root joined by →"`
}

func holderOf(h registry.Holder) holder { return holder{h.Actor.String(), h.Path} }
