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

	// reads has one in it for each snapshot that runs and is not long so far, and
	// long for each long call that runs: one that reads much, or has a large
	// message. Some processors are left for others.
	reads, long chan struct{}
	// parsing is held while a large message is taken apart.
	parsing sync.Mutex

	comings  pace[int]       // connections to the socket, by pid
	openings pace[uuid.UUID] // HTTP sessions, by actor
}

func (s *shares) init(max Transport) {
	s.max = max
	s.reads, s.long = make(chan struct{}, longTurns()), make(chan struct{}, longTurns())
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
	// be ahead of what others send later.
	turns chan struct{}
	// reader is for the one of its calls that makes a snapshot, or is in line for
	// a long turn: so actors take turns.
	reader chan struct{}
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
		sh = &share{of: s, actor: actor, turns: make(chan struct{}, maxTurns), reader: make(chan struct{}, 1)}
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

// turn waits until the actor may run one call more, in the ctx that it gives. A
// call with a large message is long.
func (sh *share) turn(ctx context.Context, long bool) (context.Context, *turn, error) {
	t := &turn{share: sh, ctx: ctx}
	if long {
		t.short.Store(true)
		if err := enter(ctx, sh.reader); err != nil {
			return ctx, nil, err
		}
		if err := t.enterLong(); err != nil {
			return ctx, nil, err
		}
	} else if err := enter(ctx, sh.turns); err != nil {
		return ctx, nil, err
	}
	return engine.ReadIn(engine.AtDisk(ctx, t.atDisk), t), t, nil
}

// A turn is what a call takes to run. A short one ends when the call only waits for the
// disk: so a sync of the disk is for as many calls of an actor as there are. It is not
// taken again: the call may hold what others wait for in their turns.
//
// How much a call reads shows when it reads it. So it has a place for each of its
// snapshots, and once one turns out to be long, a long turn, to the end of its answer.
// Only the call uses its turn.
type turn struct {
	*share
	ctx     context.Context
	short   atomic.Bool // its short turn was given back, or is not needed
	reading bool        // it has a place in reads
	long    time.Time   // since when it has a long turn; zero: it has none
}

// Begin implements [engine.Reader].
func (t *turn) Begin() error {
	if !t.long.IsZero() {
		return nil
	}
	if err := enter(t.ctx, t.reader); err != nil {
		return err
	}
	if err := enter(t.ctx, t.of.reads); err != nil {
		<-t.reader
		return err
	}
	t.reading = true
	return nil
}

// Long implements [engine.Reader].
func (t *turn) Long() error {
	if !t.reading {
		return nil
	}
	<-t.of.reads
	t.reading = false
	return t.enterLong()
}

// enterLong makes the turn a long one. The call is its actor's reader until then.
func (t *turn) enterLong() error {
	defer func() { <-t.reader }()
	if err := enter(t.ctx, t.of.long); err != nil {
		return err
	}
	t.long = time.Now()
	return nil
}

// End implements [engine.Reader].
func (t *turn) End() {
	if t.reading {
		<-t.of.reads
		<-t.reader
		t.reading = false
	}
}

// atDisk may be called more than once: a call may do several things.
func (t *turn) atDisk() {
	if t.short.CompareAndSwap(false, true) {
		<-t.turns
	}
}

// end gives the turn back. A long one is had by nobody until others had the processor
// for as long as it worked.
func (t *turn) end() {
	t.atDisk()
	if !t.long.IsZero() {
		time.AfterFunc(min(time.Since(t.long), maxRest), func() { <-t.of.long })
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
