package server

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A home serves a partition to its clients for as long as this process leads
// it. A state without partitions counts as the only one.
type home struct {
	partition int
	state     *dispatch.State
	agents    *service
	operators *service
	readers   *service

	ctx    context.Context // ends when another process takes the state
	failed func() error    // why answers can no longer be relied on; nil: they can
	guests sync.WaitGroup  // connections, and requests over HTTP
	spread *spread         // nil: there is no other partition
}

func (s *Server) newHome(ctx context.Context, partition int, state *dispatch.State, failed func() error) *home {
	hooks := tools.Hooks(state)
	openPage := func(ctx context.Context, role dispatch.Role, port, own bool) (tools.PageCode, error) {
		return s.openPage(ctx, state, role, port, own)
	}
	h := &home{
		partition: partition, state: state, ctx: ctx, failed: failed,
		agents:    newService(s.opts, tools.Agents(), slices.Concat(hooks, tools.Programs())),
		operators: newService(s.opts, slices.Concat(tools.Operators(state), tools.Logs(state, s.opts.Logs), tools.Backups(s.opts.Backup), tools.Page(openPage)), hooks),
		readers:   newService(s.opts, slices.Concat(tools.Readers(state), tools.Logs(state, s.opts.Logs)), nil),
	}
	h.agents.notFor("operators", h.operators)
	h.operators.notFor("agents", h.agents)
	h.readers.notFor("operators", h.operators)
	h.readers.notFor("agents", h.agents)
	if s.opts.Partitions > 1 {
		h.spread = &spread{server: s, home: h}
		for _, served := range []*service{h.agents, h.operators, h.readers} {
			served.spread = h.spread
		}
	}
	return h
}

// serviceFor returns the service for a session.
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

// homes are the homes of this process.
type homes struct {
	mu      sync.Mutex
	now     map[int]*home // by partition
	changed chan struct{} // closed at the next change of now
}

// change sets the home of a partition; nil removes it.
func (hs *homes) change(partition int, now *home) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if delete(hs.now, partition); now != nil {
		hs.now[partition] = now
	}
	close(hs.changed)
	hs.changed = make(chan struct{})
}

// look returns the home of a partition. If there is one, the caller is its
// guest. A home whose state has failed can answer nobody any more: it is about
// to go, and counts as gone.
func (hs *homes) look(partition int) (h *home, changed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h = hs.now[partition]; h == nil || h.failed() != nil {
		return nil, hs.changed
	}
	h.guests.Add(1)
	return h, hs.changed
}

// all returns all homes in the order of their partitions. The caller is a guest
// of each.
func (hs *homes) all() (list []*home) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, partition := range slices.Sorted(maps.Keys(hs.now)) {
		hs.now[partition].guests.Add(1)
		list = append(list, hs.now[partition])
	}
	return list
}

// knowing returns the partition whose launcher has started a process, or an
// ancestor of it.
func (hs *homes) knowing(peer process.Peer) (partition int, known bool) {
	if peer.PID == 0 {
		return 0, false
	}
	for _, h := range hs.all() {
		if !known && h.state.Knows(peer) {
			partition, known = h.partition, true
		}
		h.guests.Done()
	}
	return partition, known
}

// boundFor returns the partition for a connection, and whether the connection
// was passed on for it. An operator on another machine may let in whom it
// likes.
func (s *Server) boundFor(who dispatch.Credentials, nc net.Conn, peer process.Peer) (partition int, passedOn bool) {
	if c, ok := nc.(*passed); ok {
		return c.partition, true
	}
	partition = s.partitionOf(who, peer)
	c, ok := nc.(*remote)
	return partition, ok && c.partition == partition
}

// partitionOf returns the partition for a client that connects. If this server
// knows that the client's process was launched, that decides; otherwise what
// the client presents names its partition.
func (s *Server) partitionOf(h dispatch.Credentials, peer process.Peer) int {
	if s.opts.Partitions <= 1 {
		return 0
	}
	if partition, known := s.homes.knowing(peer); known {
		return partition
	}
	switch {
	case h.Operator:
		return 0
	case h.Token != "":
		return s.partitionOfSecret(h.Token)
	case h.Handle != "":
		return s.partitionOfSecret(h.Handle)
	default:
		return s.partitionOfRun(h.Run)
	}
}

func (s *Server) partitionOfRun(run string) int {
	return s.opts.Settled.PartitionOf(run, s.opts.Partitions)
}

// partitionOfSecret returns the partition of a token or a handle. For one that
// names no existing partition it returns the first, which can refuse it as well
// as any other.
func (s *Server) partitionOfSecret(text string) int {
	if partition := dispatch.PartitionOfSecret(text); partition < s.opts.Partitions {
		return partition
	}
	return 0
}

// Host serves the clients of a partition until ctx ends and they are gone. They
// are let go as when the daemon stops, so their sessions stay. failed returns
// why the state can no longer be relied on. Later answers are then withheld,
// and clients ask which server leads the partition.
func (s *Server) Host(ctx context.Context, partition int, state *dispatch.State, failed func() error) {
	h := s.newHome(ctx, partition, state, failed)
	s.homes.change(partition, h)
	<-ctx.Done()
	s.homes.change(partition, nil)
	s.endpoint.detach(h)
	h.guests.Wait()
	if h.spread != nil {
		h.spread.close()
	}
}

// homeTimeout is how long a connecting client waits while nobody leads its
// partition. It is longer than another server needs to take over.
const homeTimeout = 8 * time.Second

// noHome refuses a client whose partition this server does not lead.
func (s *Server) noHome() error {
	return fmt.Errorf("this server does not lead at present, nor has it come to lead while you waited%s; try again, or at another", s.why("; the logs of the servers say why"))
}

// why returns the reason why this server does not lead, after a colon, or else
// unknown.
func (s *Server) why(unknown string) string {
	if s.opts.Trouble != nil {
		if reason := s.opts.Trouble(); reason != "" {
			return ": " + reason
		}
	}
	return unknown
}

// enter returns the home of a partition, of which the caller is then a guest,
// or the way to another server that leads it. A client that was passed on for
// it is not passed on again.
func (s *Server) enter(ctx context.Context, partition int, passed bool) (*home, *Way, error) {
	late := time.NewTimer(homeTimeout)
	defer late.Stop()
	for {
		h, changed := s.homes.look(partition)
		if h != nil {
			return h, nil, nil
		}
		var moved <-chan struct{}
		if s.opts.Elsewhere != nil && !passed {
			var way *Way
			if way, moved = s.opts.Elsewhere(partition); way != nil {
				return nil, way, nil
			}
		}
		select {
		case <-changed:
		case <-moved:
		case <-late.C:
			return nil, nil, s.noHome()
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}
