package server

import (
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Options of a Server. The zero value is a production one.
type Options struct {
	Version string         // of the daemon, told to clients
	Log     zerolog.Logger // the zero Logger is silent
	Transport
}

// A Server speaks MCP for a State.
type Server struct {
	state     *dispatch.State
	opts      Options
	agents    *service
	operators *service

	attendance  *attendance
	connections atomic.Uint64 // ever, on the socket
	marked      marked
	shares      shares
	parties     tools.Parties
}

// New returns a Server for state.
func New(state *dispatch.State, opts Options) *Server {
	opts.Transport = opts.withDefaults()
	s := &Server{state: state, opts: opts, attendance: newAttendance()}
	s.shares.init(opts.Transport)
	hooks := tools.Hooks(state, &s.parties)
	s.agents = newService(opts.Version, tools.Agents(), hooks, &s.parties)
	s.operators = newService(opts.Version, tools.Operators(state), hooks, &s.parties)
	return s
}

// serviceFor is what the session is served.
func (s *Server) serviceFor(se *dispatch.Session) *service {
	if se.Actor().Role == dispatch.Operator {
		return s.operators
	}
	return s.agents
}

// forgetEnded drops what is known of a session that has ended.
func (s *Server) forgetEnded(se *dispatch.Session) {
	if se.Context().Err() != nil {
		s.parties.Forget(se.ID())
	}
}
