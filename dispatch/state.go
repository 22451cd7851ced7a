package dispatch

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/traces"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Options of a State. The zero value is suitable for production.
type Options struct {
	Caps   Caps             // for runs that are created without their own
	Leases registry.Options // limits; the functions are set by Open
	Tasks  queue.Options

	// Alive reports whether the process of a session that was connected before
	// a restart still runs. Nil: [process.Peer.Alive].
	Alive func(process.Peer) bool

	// Process describes a running process and its ancestry. Nil:
	// [process.Find].
	Process func(pid int) process.Running

	// DetachedGrace is how long a session is kept after a restart for its client
	// to reconnect, if the session holds nothing, or if the client has no living
	// process on this machine. It is also how long a run waits for its launcher.
	// Zero: 30 s.
	DetachedGrace time.Duration

	// Clock is the clock that the engine uses. Zero: the machine's.
	Clock clock.Clock

	// Above is a lower bound for tokens: every token issued from now on is
	// greater.
	Above uint64

	// Examine says that the state is only looked at, so a backup remains one.
	Examine bool

	// Traces makes spans of what happens to tasks. The zero value makes none.
	Traces traces.Tracer

	// Partition says which runs are in this state.
	Partition Partition

	// Keep is the retention of what has ended.
	Keep Retention
}

// State holds all runs of one engine: their trees, leases and sessions.
type State struct {
	eng   engine.Engine
	core  *registry.Core
	queue *queue.Queue
	opts  Options

	launchers *work.Launchers
	places    sync.Map // place by scope, of layers; see layerOf
	followed  followed

	ahead time.Duration // how far the wall clock was ahead of the running clock when the state was opened

	restored time.Time // since when the original may have changed; zero: this state was no copy when it was opened

	spoilt error // names records that could not be read when the state was opened

	ends chan struct{} // holds one token while a session that held much gives back a part of it

	mu       sync.Mutex
	parties  map[uuid.UUID]*party // sessions connected to this daemon
	layers   map[uuid.UUID]*layer.Layer
	detached map[uuid.UUID]detached // sessions that may be resumed
	left     map[client]left        // of actors that ended with untold losses

	// The sessions that ended last. If leftLast is full, it takes the place of leftBefore.
	leftLast, leftBefore map[uuid.UUID]left

	dismissed map[client][]*dismissal // actors that were ended, for the hooks of their clients

	guard  guard
	guests struct {
		mu   sync.Mutex
		open map[guest]*Session
		came chan struct{} // holds one token if there may be a new one
	}
}

// Open prepares the state in eng for use: every lease gets a full ttl, and
// sessions whose process is gone are ended. The caller must run [State.Tend].
func Open(ctx context.Context, eng engine.Engine, opts Options) (*State, error) {
	if opts.Alive == nil {
		opts.Alive = process.Peer.Alive
	}
	if opts.Process == nil {
		opts.Process = process.Find
	}
	if opts.Clock.Running == nil {
		opts.Clock = clock.Machine()
	}
	ctx = engine.Needed(ctx) // the caller can run Tend only after this
	opts.Keep = opts.Keep.withDefaults()
	opts.DetachedGrace = cmp.Or(opts.DetachedGrace, 30*time.Second)
	s := &State{
		eng: eng, opts: opts,
		parties:  make(map[uuid.UUID]*party),
		layers:   make(map[uuid.UUID]*layer.Layer),
		detached: make(map[uuid.UUID]detached),
		left:     make(map[client]left),
		leftLast: make(map[uuid.UUID]left),

		dismissed: make(map[client][]*dismissal),

		ends: make(chan struct{}, 1),

		launchers: work.NewLaunchers(eng, work.Options{Alive: opts.Alive, Find: opts.Process}),
	}
	s.guests.open, s.guests.came = make(map[guest]*Session), make(chan struct{}, 1)
	opts.Leases.SessionOpen, opts.Leases.SessionEnding = sessionOpen, sessionEnding
	opts.Leases.Present = s.present
	opts.Leases.Apart = s.apart
	opts.Leases.LayerOf = s.layerOf
	s.core = registry.New(eng, opts.Leases)
	s.queue = queue.New(eng, s.core, opts.Tasks)

	err := eng.Update(ctx, func(tx engine.Tx) error {
		if err := checkFormat(tx); err != nil {
			return err
		}
		s.ahead = tx.Wall().Sub(tx.Now())
		s.spoilt = checkEndings(tx)
		return checkRecords(tx)
	})
	if err != nil {
		return nil, err
	}
	if err := s.recoverLaunched(ctx); err != nil {
		return nil, err
	}
	if err := s.core.Recover(ctx); err != nil {
		return nil, err
	}
	err = rows.Update(ctx, eng, func(tx engine.Tx) error {
		event.Raise(tx, opts.Above)
		if opts.Examine {
			return nil
		}
		if s.restored, err = event.Restore(tx); err == nil && !s.restored.IsZero() {
			s.tellRestored(tx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := kvstore.Recover(ctx, eng); err != nil {
		return nil, err
	}
	if err := s.queue.Recover(ctx); err != nil {
		return nil, err
	}
	if err := mail.Recover(ctx, eng); err != nil {
		return nil, err
	}
	if err := s.recoverSessions(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// sessionOpen reports whether a session is open. The lease rules call it in the
// transaction that grants.
func sessionOpen(tx registry.Tx, session uuid.UUID) bool {
	_, ok := tx.Get(sessionKey(session))
	return ok
}

// sessionEnding reports whether a session that has ended has yet to give back what it held.
func sessionEnding(tx registry.Tx, session uuid.UUID) bool {
	_, ok := tx.Get(endingSession + string(session[:]))
	return ok
}

// Tend performs whatever falls due, until ctx ends: leases expire and are
// handed over, sessions that nobody resumes end, and what an absent launcher
// has left behind is cleaned up. The caller owns this goroutine; a State has no
// other long-lived one.
func (s *State) Tend(ctx context.Context) error {
	g, ctx := errgroup.WithContext(engine.Needed(ctx))
	g.Go(func() error { return s.tendRows(ctx) })
	g.Go(func() error { return s.tendDetached(ctx) })
	g.Go(func() error { return s.tendGuests(ctx) })
	g.Go(func() error { return s.tendLaunchers(ctx) })
	g.Go(func() error { return s.tendEndings(ctx) })
	g.Go(func() error { return s.tendEvents(ctx) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (s *State) tendRows(ctx context.Context) error {
	for {
		if err := s.eng.WaitDue(ctx); err != nil {
			return err
		}
		if err := s.queue.TendDue(ctx); err != nil {
			return err
		}
	}
}

// Restored returns since when the original may have changed of which this state
// was a copy until it was opened. Its numbers have leapt then.
func (s *State) Restored() (since time.Time, ok bool) { return s.restored, !s.restored.IsZero() }

// Spoilt names records that could not be read when the state was opened. What they belong
// to never ends, and everything else goes on. nil: there were none.
func (s *State) Spoilt() error { return s.spoilt }

// Changes returns a watch that fires on every change of the state.
func (s *State) Changes() *engine.Watch { return s.eng.Watch("") }

// leasesOf returns the registry of the leases of a whole run.
func (s *State) leasesOf(run Run) *registry.Registry { return s.core.Registry(run.scope()) }

// layer returns a layer, which all callers share.
func (s *State) layer(id uuid.UUID, caps Caps) *layer.Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.layers[id]
	if !ok {
		store := kvstore.New(s.eng, s.core.Registry(layerScope(id)), id, caps.Store)
		l = layer.New(s.eng, store, layer.Options{Name: memberName(id)})
		s.layers[id] = l
	}
	return l
}

// memberName returns a function that resolves the ids of a layer's members to
// their names.
func memberName(id uuid.UUID) func(engine.Tx, uuid.UUID) (string, bool) {
	return func(tx engine.Tx, actor uuid.UUID) (string, bool) {
		row, ok := tx.Get(actorKey(actor))
		if !ok {
			return "", false
		}
		a, ok := rows.Decode[Actor](tx, row)
		return a.Name, ok && (a.Layer == id || a.Leads == id)
	}
}
