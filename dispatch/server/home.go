package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A home is a state as its clients are served it, for as long as this process has it.
type home struct {
	state     *dispatch.State
	agents    *service
	operators *service
	readers   *service

	ctx    context.Context // ends when the state goes to another process
	failed func() error    // why nothing that is answered can be relied on; nil: it can
	guests sync.WaitGroup  // connections, and requests over HTTP
}

func (s *Server) newHome(ctx context.Context, state *dispatch.State, failed func() error) *home {
	hooks := tools.Hooks(state)
	openPage := func(ctx context.Context, role dispatch.Role, port bool) (tools.PageCode, error) {
		return s.openPage(ctx, state, role, port)
	}
	h := &home{
		state: state, ctx: ctx, failed: failed,
		agents:    newService(s.opts, tools.Agents(), slices.Concat(hooks, tools.Programs())),
		operators: newService(s.opts, slices.Concat(tools.Operators(state), tools.Logs(s.opts.Logs), tools.Page(openPage)), hooks),
		readers:   newService(s.opts, slices.Concat(tools.Readers(state), tools.Logs(s.opts.Logs)), nil),
	}
	h.agents.notFor("operators", h.operators)
	h.operators.notFor("agents", h.agents)
	h.readers.notFor("operators", h.operators)
	h.readers.notFor("agents", h.agents)
	return h
}

// serviceFor is what the session is served.
func (h *home) serviceFor(se *dispatch.Session) *service {
	switch se.Actor().Role {
	case dispatch.Operator:
		return h.operators
	case dispatch.Reader:
		return h.readers
	default:
		return h.agents
	}
}

// homes knows the home that this process has, if it has one.
type homes struct {
	mu        sync.Mutex
	now       *home
	changed   chan struct{} // closed by the next change of now
	endpoints []*endpoint   // that serve its clients
}

func (hs *homes) change(now *home) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.now = now
	close(hs.changed)
	hs.changed = make(chan struct{})
}

// look gives the home, as a guest if there is one.
func (hs *homes) look() (h *home, changed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.now != nil {
		hs.now.guests.Add(1)
	}
	return hs.now, hs.changed
}

// Host serves the clients of a state until ctx ends and they are gone, which are let
// go as by the daemon's end: their sessions stay. Failed says why the state has
// become worthless; what is answered after that is kept back, and the client asks who
// has the state next.
func (s *Server) Host(ctx context.Context, state *dispatch.State, failed func() error) {
	h := s.newHome(ctx, state, failed)
	s.homes.change(h)
	<-ctx.Done()
	s.homes.change(nil)
	s.homes.mu.Lock()
	endpoints := s.homes.endpoints
	s.homes.mu.Unlock()
	for _, e := range endpoints {
		e.detach(h)
	}
	h.guests.Wait()
}

// homeTimeout is how long a client that connects is kept waiting while nobody has its
// state. It waits longer than another server needs to take it over.
const homeTimeout = 8 * time.Second

// errNoHome answers a client whose state this server does not have.
var errNoHome = errors.New("this server does not lead at present, nor has it come to lead while you waited; try again, or at another")

// enter gives the home, whose guest the caller is, or the way to another server that
// has the state. Whom another has passed on is not passed on again.
func (s *Server) enter(ctx context.Context, passed bool) (*home, *Way, error) {
	late := time.NewTimer(homeTimeout)
	defer late.Stop()
	for {
		h, changed := s.homes.look()
		if h != nil {
			return h, nil, nil
		}
		var moved <-chan struct{}
		if s.opts.Elsewhere != nil && !passed {
			var way *Way
			if way, moved = s.opts.Elsewhere(); way != nil {
				return nil, way, nil
			}
		}
		select {
		case <-changed:
		case <-moved:
		case <-late.C:
			return nil, nil, errNoHome
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
