package server

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// shares limit what one actor, and all actors together, may use of the daemon,
// so that no actor can take the room of the others. The zero value has no
// actors; max has the limits.
type shares struct {
	max Transport

	mu        sync.Mutex
	actors    map[uuid.UUID]*share
	processes map[int]int // connections to the socket, by pid

	queued    atomic.Int64 // bytes of answers that clients have not read yet
	arrived   atomic.Int64 // bytes of running calls
	waits     int          // calls that wait; under mu
	strangers atomic.Int64 // HTTP connections that have shown no token

	// reads contains an element for each running snapshot that does not yet
	// count as long, and long for each running long call: one that reads much
	// or has a large message. They leave some processors to others.
	reads, long chan struct{}
	// arriving contains an element for each large message that is being
	// received; parsing is held while one is parsed.
	arriving chan struct{}
	parsing  sync.Mutex

	comings  pace[int]       // connections to the socket, by pid
	openings pace[uuid.UUID] // HTTP sessions, by actor
}

func (s *shares) init(max Transport) {
	s.max = max
	s.reads, s.long = make(chan struct{}, longTurns()), make(chan struct{}, longTurns())
	s.arriving = make(chan struct{}, maxArriving)
	s.comings.burst, s.comings.every = processBurst, processEvery
	s.openings.burst, s.openings.every = sessionBurst, sessionEvery
}

// longTurns is how many long calls run at once: one, unless there are more than
// three processors.
func longTurns() int { return max(1, runtime.GOMAXPROCS(0)-2) }

// A share is what one actor uses.
type share struct {
	of    *shares
	actor uuid.UUID
	users int // connections and HTTP sessions that refer to it; under shares.mu

	conns    int // to the socket
	sessions int // over HTTP
	requests int // connections over HTTP
	bodies   int // large ones over HTTP that arrive, or wait for room
	waits    int // calls that wait

	// turns is for running calls. An actor's further calls queue here and not
	// at the lock of the state, where they would be ahead of later calls of
	// other actors. A call has no turn while it waits.
	turns chan struct{}
	// reader is for the one call of the actor that makes a snapshot, or queues
	// for a long turn, so that the actors alternate.
	reader chan struct{}
	// heavy is how many of the actor's next calls take a long turn, because a
	// transaction of an earlier one was more work than most.
	heavy atomic.Int32
	// arriving is for large messages that are being received.
	arriving chan struct{}
	// starting is for calls that wait and have not had a turn yet. Further ones
	// are not read, because each has a goroutine, and thousands of them would
	// keep all others waiting for a processor.
	starting chan struct{}
}

// A use is a kind of resource that an actor uses.
type use int

const (
	socketConn use = iota
	webSession
	webConnection
	webBody // a large one, which finds room by the share's channel
)

func (sh *share) count(u use) (n *int, max int, which string) {
	switch u {
	case socketConn:
		return &sh.conns, sh.of.max.ActorConns, "connections of one actor"
	case webSession:
		return &sh.sessions, sh.of.max.ActorHTTPSessions, "HTTP sessions of one actor"
	case webBody:
		return &sh.bodies, math.MaxInt, ""
	default:
		return &sh.requests, sh.of.max.ActorHTTPConns, "HTTP connections of one actor"
	}
}

// take counts one more use for an actor. The caller must give it back.
func (s *shares) take(actor uuid.UUID, u use) (*share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.actors[actor]
	if sh == nil {
		sh = &share{of: s, actor: actor, turns: make(chan struct{}, maxTurns), reader: make(chan struct{}, 1), arriving: make(chan struct{}, maxActorArriving), starting: make(chan struct{}, maxTurns)}
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

// turn waits until the actor may run another call, and returns the context to
// run it in. A call with a large message is long.
func (sh *share) turn(ctx context.Context, long bool) (context.Context, *turn, error) {
	t := &turn{share: sh, ctx: ctx}
	if err := t.take(long); err != nil {
		return ctx, nil, err
	}
	return engine.InTurn(ctx, t), t, nil
}

// take waits for a turn: a long one if that is asked for, or if the actor's
// last calls were heavy. A call is known to be heavy only after its first
// transaction. So if other calls of the actor did not count, all of them could
// queue at the lock with their first transactions.
func (t *turn) take(long bool) error {
	if long = long || t.share.heavy.Load() > 0; !long {
		err := enter(t.ctx, t.turns)
		t.short.Store(err != nil)
		return err
	}
	t.short.Store(true)
	if err := enter(t.ctx, t.reader); err != nil {
		return err
	}
	return t.enterLong()
}

// A turn lets a call run. A short turn ends when the call only waits for the
// disk, so that any number of an actor's calls can share a sync. After that it
// is not taken again, because the call may hold what other calls wait for in
// their turns. A call that waits for a change gives its turn back, and takes
// another for each look at what has changed.
//
// How much a call reads is known only when it has read it. So the call takes a
// place for each of its snapshots. If one turns out to be long, the call takes
// a long turn until it is answered. Only the call itself uses its turn.
type turn struct {
	*share
	ctx     context.Context
	short   atomic.Bool // its short turn was given back, or is not needed
	reading bool        // it has a place in reads
	long    time.Time   // since when it has a long turn; zero: it has none
	heavy   bool        // its last transaction was more work than most
}

// Begin implements [engine.Turn].
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

// Long implements [engine.Turn].
func (t *turn) Long() error {
	if !t.reading {
		return nil
	}
	<-t.of.reads
	t.reading = false
	return t.enterLong()
}

// enterLong makes the turn a long one. Until then the call is its actor's
// reader.
//
// The call gets a thread of its own, so that the system sees which thread works
// much, and runs the others before it. While others listed entries of which none
// matched, the p99 of a client's calls was 0.8 ms with this and 3.5 ms without.
func (t *turn) enterLong() error {
	defer func() { <-t.reader }()
	if err := enter(t.ctx, t.of.long); err != nil {
		return err
	}
	runtime.LockOSThread()
	t.long = time.Now()
	return nil
}

// End implements [engine.Turn].
func (t *turn) End() {
	if t.reading {
		<-t.of.reads
		<-t.reader
		t.reading = false
	}
}

// Heavy implements [engine.Turn].
func (t *turn) Heavy() {
	t.heavy = true
	t.share.heavy.Store(heavyAfter)
}

// heavyAfter is how many calls that are not heavy make an actor's calls light
// again.
const heavyAfter = 16

// rest lets others use the lock after a transaction that held it for long. One
// call at a time rests, and is not answered before that; until then its actor
// has one turn less. So such transactions of any number of calls leave the lock
// to others for most of the time.
func (t *turn) rest() {
	if !t.long.IsZero() {
		return // it rests when its long turn ends
	}
	if enter(t.ctx, t.reader) != nil {
		return
	}
	defer func() { <-t.reader }()
	if enter(t.ctx, t.of.long) != nil {
		return
	}
	defer func() { <-t.of.long }()
	sleep(t.ctx, maxRest)
}

// Wait implements [engine.Turn].
func (t *turn) Wait() {
	if t.heavy {
		return
	}
	if t.short.CompareAndSwap(false, true) {
		<-t.turns
	}
}

// Pause implements [engine.Turn]. A long turn becomes free only after others
// had the processor for as long as the call worked.
func (t *turn) Pause() {
	heavy := t.heavy
	if t.heavy = false; heavy {
		t.rest()
	}
	t.Wait()
	if !t.long.IsZero() {
		time.AfterFunc(min(time.Since(t.long), maxRest), func() { <-t.of.long })
		t.long = time.Time{}
		runtime.UnlockOSThread()
		if n := t.share.heavy.Load(); n > 0 && !heavy {
			t.share.heavy.CompareAndSwap(n, n-1)
		}
	}
}

// Resume implements [engine.Turn].
func (t *turn) Resume() error { return t.take(false) }

// end gives the turn back for good.
func (t *turn) end() { t.Pause() }

func enter(ctx context.Context, turns chan struct{}) error {
	select {
	case turns <- struct{}{}:
		return nil
	default:
	}
	select {
	case turns <- struct{}{}:
		// Go runs a goroutine that is woken before all others that are ready.
		// So a long queue here would keep everybody else from the processor.
		runtime.Gosched()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

const maxRest = 2 * time.Millisecond

// begin counts a call of the actor, or refuses it if there are too many bytes of
// calls or, for a call that waits, too many that wait.
func (sh *share) begin(bytes int, waits bool) error {
	s := sh.of
	if total := s.arrived.Add(int64(bytes)); total > maxArrived && total > int64(bytes) {
		s.arrived.Add(-int64(bytes))
		return &registry.LimitError{Which: "bytes of calls under way in the daemon", Max: maxArrived}
	}
	if !waits {
		return nil
	}
	if err := sh.beginWait(); err != nil {
		s.arrived.Add(-int64(bytes))
		return err
	}
	return nil
}

func (sh *share) beginWait() error {
	s := sh.of
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sh.waits >= maxActorWaits:
		return &registry.LimitError{Which: "waiting calls of one actor", Max: maxActorWaits}
	case s.waits >= maxAllWaits:
		return &registry.LimitError{Which: "waiting calls in the daemon", Max: maxAllWaits}
	}
	sh.waits++
	s.waits++
	return nil
}

// done ends what begin has counted.
func (sh *share) done(bytes int, waits bool) {
	s := sh.of
	s.arrived.Add(-int64(bytes))
	if waits {
		s.mu.Lock()
		sh.waits--
		s.waits--
		s.mu.Unlock()
	}
}

// queue counts an answer that a client must read, and reports whether there is
// room for it. behind is how much the client has not read yet. A client that
// reads has nothing unread when its answer comes, so it is refused last.
func (s *shares) queue(bytes, behind int64) (room bool) {
	total := s.queued.Add(bytes)
	return behind == 0 && total <= 2*maxQueued || behind+bytes <= maxQueuedConn && total <= maxQueued
}

func (s *shares) unqueue(bytes int64) { s.queued.Add(-bytes) }

// enterProcess counts one more connection of a process, unless it has too many.
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
