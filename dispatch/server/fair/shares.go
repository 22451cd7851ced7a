// Package fair keeps any actor from taking the room of the others. It limits
// what one actor, and all actors together, may use of the daemon: connections,
// sessions, calls that wait, bytes that arrive and bytes that nobody has read.
//
// # Contract
//
//   - A refusal is a [registry.LimitError], which names the limit. What was taken
//     must be given back.
//   - A call runs in a [Turn] of its actor, so that the calls of many actors
//     alternate, however many each of them sends. Work that is known to be long
//     runs in few turns of all actors together.
//   - What comes faster than it can be served without harming others waits for its
//     time: see [Pace].
package fair

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

const (
	// MaxActorWaits is how many calls of one actor wait at once, on all its
	// connections, and MaxWaits how many of all actors. One change may wake
	// all of them.
	MaxActorWaits = 512
	MaxWaits      = 16384

	// MaxArrived is the total size of the messages of all running calls in the
	// daemon, and MaxArrivedWaits how much of it the waiting calls may take. The
	// rest is for calls that end soon, such as renewals and releases.
	// MaxActorArrivedWaits is how much the waiting calls of one actor may take.
	MaxArrived           = 64 * wire.MaxMessage
	MaxArrivedWaits      = MaxArrived / 2
	MaxActorArrivedWaits = MaxArrived / 8

	// MaxActorArriving is how many large messages of one actor are received at
	// once, and MaxArriving how many of all actors. Their clients may never
	// finish them.
	MaxActorArriving = 8
	MaxArriving      = 64

	// MaxTurns is how many calls of one actor run at once, not counting those
	// that wait for the disk or for a change. More would not be faster, because
	// they would wait for the same lock, and would keep others from a processor.
	MaxTurns = 4

	// The unread answers are limited for each client and for all clients. A
	// client that exceeds the limit is disconnected.
	MaxClientUnread = 8 << 20
	MaxUnread       = 128 << 20

	// How fast connections to the socket of one process are accepted, and HTTP
	// sessions of one actor. Each costs transactions.
	processBurst, processEvery = 256, 4 * time.Millisecond
	sessionBurst, sessionEvery = 64, 20 * time.Millisecond
)

// Limits are those that depend on how many files may be open.
type Limits struct {
	ProcessConns int // connections to the socket of one process
	ActorConns   int // connections to the socket of one actor

	ActorHTTPConns    int
	ActorHTTPSessions int
}

// Shares are what the actors use of one daemon.
type Shares struct {
	limits Limits

	mu        sync.Mutex
	actors    map[uuid.UUID]*Share
	processes map[int]int // connections to the socket, by pid

	unread  atomic.Int64 // bytes of answers that clients have not read yet
	arrived atomic.Int64 // bytes of running calls
	waits   int          // calls that wait; under mu
	waiting int          // bytes of them; under mu

	// reads contains an element for each running snapshot that does not yet
	// count as long, and long for each running long call: one that reads much
	// or has a large message. They leave some processors to others.
	reads, long chan struct{}

	// looks contains an element for each call that looks for a change for which
	// it would wait.
	looks chan struct{}

	Arriving chan struct{} // contains an element for each large message that is being received

	Comings  *Pace[int]       // connections to the socket, by pid
	Openings *Pace[uuid.UUID] // HTTP sessions, by actor
}

// New returns the shares of a daemon that has no actors yet.
func New(limits Limits) *Shares {
	return &Shares{
		limits: limits,
		actors: make(map[uuid.UUID]*Share), processes: make(map[int]int),
		reads: make(chan struct{}, longTurns()), long: make(chan struct{}, longTurns()),
		looks:    make(chan struct{}, min(runtime.NumCPU(), runtime.GOMAXPROCS(0))),
		Arriving: make(chan struct{}, MaxArriving),
		Comings:  NewPace[int](processBurst, processEvery), Openings: NewPace[uuid.UUID](sessionBurst, sessionEvery),
	}
}

// longTurns is how many long calls run at once: one, unless there are more than
// three processors.
func longTurns() int { return max(1, runtime.GOMAXPROCS(0)-2) }

// A Share is what one actor uses.
type Share struct {
	of    *Shares
	actor uuid.UUID
	users int // connections and HTTP sessions that refer to it; under Shares.mu

	conns    int // to the socket
	sessions int // over HTTP
	requests int // connections over HTTP
	bodies   int // large ones over HTTP that arrive, or wait for room
	waits    int // calls that wait
	waiting  int // bytes of them

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
	// Arriving is for large messages that are being received.
	Arriving chan struct{}
	// Starting is for calls that wait and have not had a turn yet. Further ones
	// are not read, because each has a goroutine, and thousands of them would
	// keep all others waiting for a processor.
	Starting chan struct{}
}

// A Use is a kind of resource that an actor uses.
type Use int

const (
	SocketConn Use = iota // a connection to the socket
	WebSession            // over HTTP
	WebConn               // over HTTP
	WebBody               // a large one, which finds room by the share's channel
)

func (sh *Share) count(u Use) (n *int, max int, which string) {
	switch u {
	case SocketConn:
		return &sh.conns, sh.of.limits.ActorConns, "connections of one actor"
	case WebSession:
		return &sh.sessions, sh.of.limits.ActorHTTPSessions, "HTTP sessions of one actor"
	case WebBody:
		return &sh.bodies, math.MaxInt, ""
	default:
		return &sh.requests, sh.of.limits.ActorHTTPConns, "HTTP connections of one actor"
	}
}

// Take counts one more use for an actor, unless there are too many. The caller must give
// it back.
func (s *Shares) Take(actor uuid.UUID, u Use) (*Share, error) { return s.take(actor, u, false) }

// TakeBack is Take for a use that an earlier daemon has admitted, so it is not refused.
func (s *Shares) TakeBack(actor uuid.UUID, u Use) *Share {
	sh, _ := s.take(actor, u, true)
	return sh
}

func (s *Shares) take(actor uuid.UUID, u Use, admitted bool) (*Share, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.actors[actor]
	if sh == nil {
		sh = &Share{of: s, actor: actor, turns: make(chan struct{}, MaxTurns), reader: make(chan struct{}, 1), Arriving: make(chan struct{}, MaxActorArriving), Starting: make(chan struct{}, MaxTurns)}
	}
	n, limit, which := sh.count(u)
	if *n >= limit && !admitted {
		return nil, &registry.LimitError{Which: which, Max: int64(limit)}
	}
	*n++
	sh.users++
	s.actors[actor] = sh
	return sh, nil
}

func (sh *Share) GiveBack(u Use) {
	sh.of.mu.Lock()
	defer sh.of.mu.Unlock()
	n, _, _ := sh.count(u)
	*n--
	if sh.users--; sh.users == 0 {
		delete(sh.of.actors, sh.actor)
	}
}

// Begin counts a call of the actor, or refuses it if there are too many bytes of
// calls or, for a call that waits, too many that wait.
func (sh *Share) Begin(bytes int, waits bool) error {
	s := sh.of
	if total := s.arrived.Add(int64(bytes)); total > MaxArrived && total > int64(bytes) {
		s.arrived.Add(-int64(bytes))
		return &registry.LimitError{Which: "bytes of calls under way in the daemon", Max: MaxArrived}
	}
	if !waits {
		return nil
	}
	if err := sh.beginWait(bytes); err != nil {
		s.arrived.Add(-int64(bytes))
		return err
	}
	return nil
}

func (sh *Share) beginWait(bytes int) error {
	s := sh.of
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sh.waits >= MaxActorWaits:
		return &registry.LimitError{Which: "waiting calls of one actor", Max: MaxActorWaits}
	case s.waits >= MaxWaits:
		return &registry.LimitError{Which: "waiting calls in the daemon", Max: MaxWaits}
	case sh.waiting+bytes > MaxActorArrivedWaits:
		return &registry.LimitError{Which: "bytes of waiting calls of one actor", Max: MaxActorArrivedWaits}
	case s.waiting+bytes > MaxArrivedWaits:
		return &registry.LimitError{Which: "bytes of waiting calls in the daemon", Max: MaxArrivedWaits}
	}
	sh.waits++
	s.waits++
	sh.waiting += bytes
	s.waiting += bytes
	return nil
}

// Done ends what Begin has counted.
func (sh *Share) Done(bytes int, waits bool) {
	s := sh.of
	s.arrived.Add(-int64(bytes))
	if waits {
		s.mu.Lock()
		sh.waits--
		s.waits--
		sh.waiting -= bytes
		s.waiting -= bytes
		s.mu.Unlock()
	}
}

// Queue counts an answer that a client must read, and reports whether there is
// room for it. behind is how much the client has not read yet. A client that
// reads has nothing unread when its answer comes, so it is refused last.
func (s *Shares) Queue(bytes, behind int64) (room bool) {
	total := s.unread.Add(bytes)
	return behind == 0 && total <= 2*MaxUnread || behind+bytes <= MaxClientUnread && total <= MaxUnread
}

// Unqueue ends what Queue has counted.
func (s *Shares) Unqueue(bytes int64) { s.unread.Add(-bytes) }

// Unread is how many bytes of answers clients have not read.
func (s *Shares) Unread() int64 { return s.unread.Load() }

// EnterProcess counts one more connection of a process, unless it has too many.
func (s *Shares) EnterProcess(pid int) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[pid] >= s.limits.ProcessConns {
		return nil, &registry.LimitError{Which: "connections of one process", Max: int64(s.limits.ProcessConns)}
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
