package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// AddTestTool gives agents a tool that only tests know. It may block.
func (s *Server) AddTestTool(name string, fn func(context.Context, *dispatch.Session) string) {
	s.homes.now[0].agents.tools[name] = served{call: func(ctx context.Context, se *dispatch.Session, _ tools.Arguments) tools.Reply {
		return tools.ReplyOf(json.RawMessage("{}"), fn(ctx, se), false)
	}}
}

// ServeHTTP serves one request, without a connection.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.endpoint.routes.ServeHTTP(w, r) }

// MaxWaits is the bound of waiting calls.
const MaxWaits = maxWaits

// MaxActorArriving is the bound of an actor's large messages that arrive.
const MaxActorArriving = fair.MaxActorArriving

// QueuedBytes is how much all clients have still to read.
func QueuedBytes(s *Server) int64 { return s.shares.Unread() }

// MaxSubscriptions is how many resources a client is told of.
const MaxSubscriptions = maxSubscriptions

// PageCode is a one-time code as leasehold open gets it.
func (s *Server) PageCode(ctx context.Context, state *dispatch.State, role dispatch.Role) (string, error) {
	made, err := s.openPage(ctx, state, role, false, false)
	return made.Code, err
}

// KnownCalls is how many answered calls of HTTP sessions are known.
func KnownCalls(s *Server) (n int) {
	e := s.endpoint
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, hs := range e.sessions {
		hs.requests.mu.Lock()
		n += len(hs.requests.answered)
		hs.requests.mu.Unlock()
	}
	return n
}
