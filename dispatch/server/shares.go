package server

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/registry"
)

// shares bound what one actor, and all together, may take of the daemon, so
// that whatever an actor does, the others find room. The zero value has no
// actor; max are the bounds.
type shares struct {
	max Transport

	mu        sync.Mutex
	actors    map[uuid.UUID]*share
	processes map[int]int // connections to the socket, by pid

	queued    atomic.Int64 // bytes of answers that wait for their clients to read
	arrived   atomic.Int64 // bytes of calls under way
	strangers atomic.Int64 // HTTP connections that have shown no token

	// long has one in it for each long call that runs: a listing, or a call
	// with a large message. Some processors are left for others.
	long chan struct{}
	// parsing is held while a large message is taken apart.
	parsing sync.Mutex

	comings  pace[int]       // connections to the socket, by pid
	openings pace[uuid.UUID] // HTTP sessions, by actor
}

func (s *shares) init(max Transport) {
	s.max = max
	s.long = make(chan struct{}, longTurns())
	s.comings.burst, s.comings.every = processBurst, processEvery
	s.openings.burst, s.openings.every = sessionBurst, sessionEvery
}

// longTurns is how many long calls run at once: one, unless there are more than
// three processors.
func longTurns() int { return max(1, runtime.GOMAXPROCS(0)-2) }

// A share is what one actor takes.
type share struct {
	of    *shares
	actor uuid.UUID
	users int // connections and HTTP sessions that refer to it; under shares.mu

	conns    int // to the socket
	sessions int // over HTTP
	requests int // connections over HTTP

	// turns is for the calls that run and do not wait. What an actor sends
	// beyond waits here, and not at the lock of the state: there it would
	// be ahead of what others send later. Of the long calls of an actor one
	// is in line for its turn: so actors take turns.
	turns chan struct{}
	long  chan struct{}
}

// A use is one kind of thing that an actor has several of.
type use int

const (
	socketConn use = iota
	webSession
	webConnection
)

func (sh *share) count(u use) (n *int, max int, which string) {
	switch u {
	case socketConn:
		return &sh.conns, sh.of.max.ActorConns, "connections of one actor"
	case webSession:
		return &sh.sessions, sh.of.max.ActorHTTPSessions, "HTTP sessions of one actor"
	default:
		return &sh.requests, sh.of.max.ActorHTTPConns, "HTTP connections of one actor"
	}
}

// take counts one more use for an actor. The caller gives it back.
func (s *shares) take(actor uuid.UUID, u use) (*share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.actors[actor]
	if sh == nil {
		sh = &share{of: s, actor: actor, turns: make(chan struct{}, maxTurns), long: make(chan struct{}, 1)}
	}
	n, limit, which := sh.count(u)
	if *n >= limit {
		return nil, &registry.LimitError{Which: which, Max: int64(limit)}
	}
	*n++
	sh.users++
	if s.actors == nil {
		s.actors = make(map[uuid.UUID]*share)
	}
	s.actors[actor] = sh
	return sh, nil
}

func (sh *share) giveBack(u use) {
	sh.of.mu.Lock()
	defer sh.of.mu.Unlock()
	n, _, _ := sh.count(u)
	*n--
	if sh.users--; sh.users == 0 {
		delete(sh.of.actors, sh.actor)
	}
}

// turn waits until the actor may run one call more; end gives the turn back.
func (sh *share) turn(ctx context.Context, long bool) (end func(), err error) {
	if !long {
		return sh.endTurn, enter(ctx, sh.turns)
	}
	if err := enter(ctx, sh.long); err != nil {
		return nil, err
	}
	defer func() { <-sh.long }() // in line no more
	err = enter(ctx, sh.of.long)
	began := time.Now()
	return func() { sh.of.endLong(time.Since(began)) }, err
}

func enter(ctx context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	select {
	case turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (sh *share) endTurn() { <-sh.turns }

// endLong gives a long turn back, once others had the processor for as long as it
// took. What waited for the disk took no processor.
func (s *shares) endLong(took time.Duration) {
	time.AfterFunc(min(took, maxRest), func() { <-s.long })
}

const maxRest = 2 * time.Millisecond

// arrive counts the bytes of a call in, unless there are too many under way.
func (s *shares) arrive(bytes int) error {
	if total := s.arrived.Add(int64(bytes)); total > maxArrived && total > int64(bytes) {
		s.arrived.Add(-int64(bytes))
		return &registry.LimitError{Which: "bytes of calls under way in the daemon", Max: maxArrived}
	}
	return nil
}

func (s *shares) done(bytes int) { s.arrived.Add(-int64(bytes)) }

// queue counts an answer in that its client has to read, and reports whether
// there is room for it. Behind is what the same client has still to read. A
// client that reads has nothing to read when its answer comes, so it is refused
// last.
func (s *shares) queue(bytes, behind int64) (room bool) {
	total := s.queued.Add(bytes)
	return behind == 0 && total <= 2*maxQueued || behind+bytes <= maxQueuedConn && total <= maxQueued
}

func (s *shares) unqueue(bytes int64) { s.queued.Add(-bytes) }

// enterProcess counts one more connection of a process in, unless it has too
// many.
func (s *shares) enterProcess(pid int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[pid] >= s.max.ProcessConns {
		return nil, &registry.LimitError{Which: "connections of one process", Max: int64(s.max.ProcessConns)}
	}
	if s.processes == nil {
		s.processes = make(map[int]int)
	}
	s.processes[pid]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.processes[pid]--; s.processes[pid] == 0 {
			delete(s.processes, pid)
		}
	}, nil
}
