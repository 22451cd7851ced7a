package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A client is the process that an agent runs in, in one run.
type client struct {
	run  string
	pid  int    // 0: it runs elsewhere, and has a mark
	mark string // see [Origin]
}

// A left is an actor that ended with the connection of its client, and was not told
// what it lost with it. If the client connects again, it becomes another actor, which
// is told: a client whose MCP server has died starts another, and its model goes on
// as if nothing had happened.
type left struct {
	actor uuid.UUID
	until time.Time // on the running clock
}

// leftTime is how long after the end of its connection a client is told.
const leftTime = time.Minute

// noteLeft remembers an actor that ends with its last session, if it has losses to be
// told of.
func (s *State) noteLeft(tx engine.Tx, a Actor, o Origin) {
	c := client{a.Run, o.PID, o.Mark}
	_, losses := s.core.Untold(tx, registry.Holder{Actor: a.ID}, 0)
	if losses == 0 || c.pid == 0 && c.mark == "" {
		return
	}
	now := tx.Now()
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.DeleteFunc(s.left, func(_ client, l left) bool { return now.After(l.until) })
		s.left[c] = left{a.ID, now.Add(leftTime)}
	})
}

// leftBy returns the actor whose losses a client is told that connects now, if there is
// one. A client with another connection may have one for each of its sub-agents, so
// nobody knows which of them lost what the actor held.
func (s *State) leftBy(run string, o Origin) left {
	s.mu.Lock()
	l, ok := s.left[client{run, o.PID, o.Mark}]
	s.mu.Unlock()
	connected := func(p *party) bool { return !p.guest }
	if !ok || slices.ContainsFunc(s.partiesOf(o.PID, o.Mark), connected) {
		return left{}
	}
	return l
}
