package registry

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// Bounds of what may be asked.
const (
	MinTTL       = time.Second
	MaxTTL       = 24 * time.Hour
	DefaultTTL   = time.Minute
	MaxWait      = 50 * time.Second // clients cut calls at 60 s
	ParkTime     = 30 * time.Second // how long a place is kept between two calls
	ReserveTime  = 5 * time.Second  // how long a free key is kept for the first in line
	MaxKey       = 512              // bytes
	MaxParty     = 128              // bytes
	MaxRequestID = 128              // bytes
	MaxReason    = 256              // bytes

	DefaultLeasesPerActor = 10_000
)

const (
	// longTTL is the longest ttl that a restart grants anew.
	longTTL = 5 * time.Minute
	// lag bounds how much later a long lease may end than its stored deadline says.
	lag = 5 * time.Minute
	// keepLost is how long a holder can still be told what became of a lease.
	keepLost = time.Hour
	// keepRequest is how long after its lease a request_id is remembered.
	keepRequest = 10 * time.Minute
)

// Tx is the transaction of the rules.
type Tx = engine.Tx

// Options of a Core. The zero value serves a core without sessions of its own.
type Options struct {
	// SessionOpen reports in tx whether a session has not ended: nothing is
	// granted to one that has. Nil: every session is open.
	SessionOpen func(tx Tx, session uuid.UUID) bool

	// Present reports whether the session has a live connection or process
	// now: only then are its keep_alive leases extended. Nil: always.
	Present func(session uuid.UUID) bool

	// LayerOf tells whose events those of a scope are, other than "run:<id>": of
	// which run, and of which layer there. Nil: nobody's, they are not recorded.
	LayerOf func(tx Tx, scope string) (run uuid.UUID, path string)

	MaxWaitersPerKey   int // 1000
	MaxWaitersPerActor int // 100
	MaxLeasesPerScope  int // 100 000
	MaxLeasesPerActor  int // DefaultLeasesPerActor
}

// A Core is the rules of a lease over one engine.
type Core struct {
	eng  engine.Engine
	opts Options

	freed map[string]func(Tx, Lease, Cause) // by scope, instead of a hand-over
	calls sync.Map                          // the contexts of those that wait in this process, by id
}

// New returns the Core over eng.
func New(eng engine.Engine, opts Options) *Core {
	opts.MaxWaitersPerKey = cmp.Or(opts.MaxWaitersPerKey, 1000)
	opts.MaxWaitersPerActor = cmp.Or(opts.MaxWaitersPerActor, 100)
	opts.MaxLeasesPerScope = cmp.Or(opts.MaxLeasesPerScope, 100_000)
	opts.MaxLeasesPerActor = cmp.Or(opts.MaxLeasesPerActor, DefaultLeasesPerActor)
	if opts.SessionOpen == nil {
		opts.SessionOpen = func(Tx, uuid.UUID) bool { return true }
	}
	if opts.Present == nil {
		opts.Present = func(uuid.UUID) bool { return true }
	}
	return &Core{eng: eng, opts: opts, freed: make(map[string]func(Tx, Lease, Cause))}
}

// Registry returns the core bound to scope.
func (c *Core) Registry(scope string) *Registry { return &Registry{core: c, scope: scope} }

// OnFreed has freed told of every lease of a scope that ends, in the transaction
// that ends it. Such a scope has no lines: freed decides what becomes of the
// key. It must be called before the Core is used.
func (c *Core) OnFreed(scope string, freed func(Tx, Lease, Cause)) {
	c.freed[scope] = freed
}

// Open reports in tx whether a session has not ended.
func (c *Core) Open(tx Tx, session uuid.UUID) bool { return c.opts.SessionOpen(tx, session) }

// update runs one rule for holder. A rule's refusal is its answer, not a fault
// of the transaction: what it did on the way (an expiry it came upon) stands.
func (c *Core) update(ctx context.Context, holder Holder, rule func(Tx) error) error {
	if holder.Local {
		ctx = engine.Local(ctx)
	}
	var refusal error
	err := c.eng.Update(ctx, func(tx engine.Tx) error {
		refusal = rule(tx)
		return nil
	})
	return cmp.Or(err, refusal)
}

// asking reports whether a call still wants an answer.
func (c *Core) asking(id uuid.UUID) bool {
	ctx, ok := c.calls.Load(id)
	return ok && ctx.(context.Context).Err() == nil
}

func checkTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &ArgumentError{"ttl_secs", fmt.Sprintf("must be from %d to %d", MinTTL/time.Second, MaxTTL/time.Second)}
	}
	return nil
}
