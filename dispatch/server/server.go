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

// instructions are what an agent reads before it sees a tool.
const instructions = `Leasehold keeps agents that work side by side off each other's toes.
1. Before you touch something shared (a file, a port, a deployment), take a lease: run_lease_acquire, or lease_acquire for what only your own sub-tree touches. Ask with wait_secs to wait in line.
2. Work. Renew with lease_renew before expires_in_ms runs out, or take it with keep_alive. If an answer says you lost the lease, stop.
3. Give it back with lease_release or run_lease_release. If you crash or disconnect it is given back for you.
As a lead: spawn_worker and spawn_sublead start agents, actor_wait tells when they are finished and what they reported. Whoever is started reports with actor_report before it exits.`

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
