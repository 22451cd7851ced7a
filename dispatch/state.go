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
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Options of a State. The zero value is a production one.
type Options struct {
	Caps   Caps             // of runs that are made without their own
	Leases registry.Options // bounds; its SessionOpen and Present are the State's own
	Tasks  queue.Options

	// Alive reports whether the process of a session that was connected
	// before a restart still runs. Nil: [process.Peer.Alive].
	Alive func(process.Peer) bool

	// Process describes a running process, and where it comes from. Nil:
	// [process.Find].
	Process func(pid int) process.Running

	// DetachedGrace is how long such a session is kept, once it holds no
	// lease, for its process to connect again, and how long a run waits for
	// its launcher. Zero: 30 s.
	DetachedGrace time.Duration

	// Clock is what the engine reads time from. The zero value is the
	// machine's.
	Clock clock.Clock

	// Above is a number that every token is greater than which this opening of the
	// state issues.
	Above uint64

	// Keep is how long what has ended is kept.
	Keep Retention
}

// State is all runs of one engine: the trees, the leases that span them, and
// the sessions.
type State struct {
	eng   engine.Engine
	core  *registry.Core
	queue *queue.Queue
	opts  Options

	launchers *work.Launchers
	places    sync.Map // of layers, by scope: see layerOf

	ahead time.Duration // of the running clock: the wall clock, when the state was opened

	ends chan struct{} // has one in it while a session that held much gives some of it back

	mu       sync.Mutex
	parties  map[uuid.UUID]*party // the sessions that are connected to this process
	layers   map[uuid.UUID]*layer.Layer
	detached map[uuid.UUID]detached // the sessions that wait to be resumed

	guard  guard
	guests struct {
		mu   sync.Mutex
		open map[guest]*Session
		came chan struct{} // has one in it when there may be a new one
	}
}

// Open readies the state that eng holds: every lease gets its ttl anew, and
// sessions whose process is gone are ended. The caller runs [State.Tend].
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
	opts.Keep = opts.Keep.withDefaults()
	opts.DetachedGrace = cmp.Or(opts.DetachedGrace, 30*time.Second)
	s := &State{
		eng: eng, opts: opts,
		parties:  make(map[uuid.UUID]*party),
		layers:   make(map[uuid.UUID]*layer.Layer),
		detached: make(map[uuid.UUID]detached),
		ends:     make(chan struct{}, 1),

		launchers: work.NewLaunchers(eng, work.Options{Alive: opts.Alive, Find: opts.Process}),
	}
	s.guests.open, s.guests.came = make(map[guest]*Session), make(chan struct{}, 1)
	opts.Leases.SessionOpen = sessionOpen
	opts.Leases.Present = s.present
	opts.Leases.LayerOf = s.layerOf
	s.core = registry.New(eng, opts.Leases)
	s.queue = queue.New(eng, s.core, opts.Tasks)

	err := eng.Update(ctx, func(tx engine.Tx) error {
		if err := checkFormat(tx); err != nil {
			return err
		}
		s.ahead = tx.Wall().Sub(tx.Now())
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
	if opts.Above > 0 {
		if err := eng.Update(ctx, func(tx engine.Tx) error { event.Raise(tx, opts.Above); return nil }); err != nil {
			return nil, err
		}
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

// sessionOpen is asked by the lease rules in the transaction that grants.
func sessionOpen(tx registry.Tx, session uuid.UUID) bool {
	_, ok := tx.Get(sessionKey(session))
	return ok
}

// Tend does what falls due, until ctx ends: leases expire and are handed over,
// sessions that nobody resumes end, and so does what a launcher leaves behind. It is the one long-lived goroutine of a
// State, owned by its caller.
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

// Changes wakes on every change of the state, for those who show it.
func (s *State) Changes() *engine.Watch { return s.eng.Watch("") }

// leasesOf is the registry that spans a run.
func (s *State) leasesOf(run Run) *registry.Registry { return s.core.Registry(run.scope()) }

// layer returns the store of a layer, one for all its callers.
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

// memberName resolves ids to names among those who belong to a layer.
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
