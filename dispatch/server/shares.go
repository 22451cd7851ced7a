package server

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
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

	// lengthy are the tools whose last listing for the actor was long. Until one is, a
	// listing takes a turn as any other call.
	lengthy lengthy
}

// lengthy is a set of tools.
type lengthy struct {
	mu    sync.Mutex
	tools map[string]bool
}

func (l *lengthy) has(tool string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tools[tool]
}

func (l *lengthy) note(tool string, is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.tools[tool] == is:
	case is && l.tools == nil:
		l.tools = map[string]bool{tool: true}
	case is:
		l.tools[tool] = true
	default:
		delete(l.tools, tool)
	}
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

// turn waits until the actor may run one call more, in the ctx that it gives. Listing is
// the tool of one that lists, or "".
func (sh *share) turn(ctx context.Context, long bool, listing string) (context.Context, *turn, error) {
	t := &turn{share: sh, listing: listing, long: long}
	if !long {
		if err := enter(ctx, sh.turns); err != nil {
			return ctx, nil, err
		}
	} else {
		if err := enter(ctx, sh.long); err != nil {
			return ctx, nil, err
		}
		defer func() { <-sh.long }() // in line no more
		if err := enter(ctx, sh.of.long); err != nil {
			return ctx, nil, err
		}
	}
	t.began = time.Now()
	return engine.AtDisk(ctx, t.atDisk), t, nil
}

// A turn is what a call takes to run. A short one ends when the call only waits for the
// disk: so a sync of the disk is for as many calls of an actor as there are. It is not
// taken again: the call may hold what others wait for in their turns.
type turn struct {
	*share
	listing string
	large   bool // the answer
	long    bool
	began   time.Time
	worked  atomic.Int64 // nanoseconds until it only waited for the disk; 0: it works
}

// atDisk may be called more than once: a call may do several things.
func (t *turn) atDisk() {
	if t.worked.CompareAndSwap(0, int64(max(1, time.Since(t.began)))) && !t.long {
		<-t.turns
	}
}

// end gives the turn back.
func (t *turn) end() {
	t.atDisk()
	worked := time.Duration(t.worked.Load())
	if t.long {
		t.of.endLong(worked)
	}
	if t.listing != "" {
		t.lengthy.note(t.listing, t.large || worked > longWork)
	}
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

// endLong gives a long turn back, once others had the processor for as long as it
// worked.
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
