package registry

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
)

// Bounds on arguments.
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
	// longTTL is the longest ttl that a restart grants again in full.
	longTTL = 5 * time.Minute
	// lag is how much later than its stored deadline a long lease may end.
	lag = 5 * time.Minute
	// keepLost is how long a lease that was lost can still be reported after its
	// holder was told, or after the session that was to be told has ended.
	keepLost = time.Hour

	// maxLooked is at how many leases a notice of a loss looks for the current holder.
	maxLooked = 16
	// keepRequest is how long a request_id is remembered after its lease has
	// ended.
	keepRequest = 10 * time.Minute
)

// Tx is the transaction of the rules.
type Tx = engine.Tx

// Options of a Core. The zero value is for a core that tracks no sessions.
type Options struct {
	// SessionOpen reports in tx whether a session is open; nothing is granted
	// to one that has ended. If it is nil, every session is open.
	SessionOpen func(tx Tx, session uuid.UUID) bool

	// SessionEnding reports in tx whether a session that has ended has yet to give back
	// what it held. If it is nil, none has.
	SessionEnding func(tx Tx, session uuid.UUID) bool

	// Present reports whether the session has a live connection or process now.
	// Its keep_alive leases are extended only while it has. If it is nil, every
	// session is present.
	Present func(session uuid.UUID) bool

	// Apart reports whether two names are those of two parties of a session for sure.
	// Otherwise they may be names of one, which loses nothing if it renews or releases
	// its lease under the other. If it is nil, they always are those of two.
	Apart func(session uuid.UUID, a, b string) bool

	// LayerOf returns the run and the layer to which the events of a scope
	// belong, unless the scope is "run:<id>". If it is nil, the events of such
	// scopes belong to no run.
	LayerOf func(tx Tx, scope string) (run uuid.UUID, path string)

	MaxWaitersPerKey   int // 1000
	MaxWaitersPerActor int // 100
	MaxLeasesPerScope  int // 100 000
	MaxLeasesPerActor  int // DefaultLeasesPerActor

	// SearchedAtOnce is how many leases and places a search for a deadlock looks
	// at under the lock. 64.
	SearchedAtOnce int
}

// A Core applies the rules of leases to one engine.
type Core struct {
	eng  engine.Engine
	opts Options

	freed    map[string]func(Tx, Lease, Cause) // by scope; called instead of handing a key over
	calls    sync.Map                          // id of each call that waits in this process → its *ask
	underway call.Underway
}

// New returns the Core over eng.
func New(eng engine.Engine, opts Options) *Core {
	opts.MaxWaitersPerKey = cmp.Or(opts.MaxWaitersPerKey, 1000)
	opts.MaxWaitersPerActor = cmp.Or(opts.MaxWaitersPerActor, 100)
	opts.MaxLeasesPerScope = cmp.Or(opts.MaxLeasesPerScope, 100_000)
	opts.MaxLeasesPerActor = cmp.Or(opts.MaxLeasesPerActor, DefaultLeasesPerActor)
	opts.SearchedAtOnce = cmp.Or(opts.SearchedAtOnce, 64)
	if opts.SessionOpen == nil {
		opts.SessionOpen = func(Tx, uuid.UUID) bool { return true }
	}
	if opts.SessionEnding == nil {
		opts.SessionEnding = func(Tx, uuid.UUID) bool { return false }
	}
	if opts.Present == nil {
		opts.Present = func(uuid.UUID) bool { return true }
	}
	if opts.Apart == nil {
		opts.Apart = func(uuid.UUID, string, string) bool { return true }
	}
	return &Core{eng: eng, opts: opts, freed: make(map[string]func(Tx, Lease, Cause))}
}

// Registry returns the core bound to scope.
func (c *Core) Registry(scope string) *Registry { return &Registry{core: c, scope: scope} }

// OnFreed makes the Core call freed for every lease of a scope that ends, in
// the transaction that ends it. Such a scope has no lines: freed decides what
// happens to the key. OnFreed must be called before the Core is used.
func (c *Core) OnFreed(scope string, freed func(Tx, Lease, Cause)) {
	c.freed[scope] = freed
}

// Enter refuses a call whose request_id a different call has that is not
// answered yet. Claims of tasks enter as well as acquires, because a session has
// one set of request_ids. See [call.Underway.Enter].
func (c *Core) Enter(ctx context.Context, kind call.Kind, asked call.Call) (leave func(), err error) {
	return c.underway.Enter(ctx, kind, asked)
}

// Open reports in tx whether a session is open.
func (c *Core) Open(tx Tx, session uuid.UUID) bool { return c.opts.SessionOpen(tx, session) }

// update runs one rule for holder. A rule's refusal is its answer and does not
// roll the transaction back: what the rule did before, such as ending an
// expired lease, is kept.
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
	p, ok := c.calls.Load(id)
	return ok && p.(*ask).ctx.Err() == nil
}

// CheckTTL reports what is wrong with a ttl.
func CheckTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &ArgumentError{"ttl_secs", fmt.Sprintf("must be from %d to %d", MinTTL/time.Second, MaxTTL/time.Second)}
	}
	return nil
}

// CheckWait reports what is wrong with a time to wait.
func CheckWait(wait time.Duration) error {
	if wait < 0 || wait > MaxWait {
		return &ArgumentError{"wait_secs", fmt.Sprintf("must be from 0 to %d", MaxWait/time.Second)}
	}
	return nil
}
