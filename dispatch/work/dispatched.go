package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// A Dispatched is what a run has beside its tree if its actors are launched.
type Dispatched struct {
	RunID      uuid.UUID
	Life       int // 1, and one more each time it is resumed
	Agents     []string
	Settings   Settings
	Drain      *Drain
	Unfinished int    // works that are not final
	Orders     uint64 // one more with each order, which wakes its launcher
	Launcher   process.Peer
}

// Settings are what a run's manifest says for all of it.
type Settings struct {
	Depth       int // zero, here and below: the default
	LayerActors int
	RunActors   int
	Store       kvstore.Limits
	Budget      Money

	SubleadAgent, SubleadModel string
	SubleadBudget              Money
	SubleadWorkers             int
	SubleadTimeout             time.Duration
	SubleadReadDown            bool

	WorkerAgent, WorkerModel string
	WorkerBudget             Money
	WorkerTimeout            time.Duration
	WorkerWorktree           bool
}

// A Drain is a run's end in sight: nothing is spawned any more.
type Drain struct {
	Reason string
	At     time.Time
}

// RunOf is what a run has if its actors are launched.
func RunOf(tx engine.Tx, run string) (Dispatched, bool) {
	return rows.Get[Dispatched](tx, Key(run))
}

// AmendRun changes what a run has, or makes it.
func AmendRun(tx engine.Tx, run string, change func(*Dispatched)) {
	d, _ := RunOf(tx, run)
	change(&d)
	rows.Put(tx, Key(run), d, uuid.Nil)
}
