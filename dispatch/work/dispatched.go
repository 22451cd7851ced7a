package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// A Dispatched is the additional record of a run whose actors are launched.
type Dispatched struct {
	RunID      uuid.UUID
	Life       int // 1, plus one for each resume
	Agents     []string
	Settings   Settings
	Drain      *Drain
	Unfinished int    // works that are not final
	Orders     uint64 // incremented with each order, which wakes the launcher
	Launcher   process.Peer
	Instance   string `json:",omitempty"` // of the process of the launcher that dispatches it, which it chose at random
}

// A Drain says that a run is ending, so that nothing more can be spawned.
type Drain struct {
	Reason string
	At     time.Time
}

// RunOf returns the record of a run; ok is false if its actors are not
// launched.
func RunOf(tx engine.Tx, run string) (Dispatched, bool) {
	return rows.Get[Dispatched](tx, Key(run))
}

// AmendRun changes the record of a run, or creates it.
func AmendRun(tx engine.Tx, run string, change func(*Dispatched)) {
	d, _ := RunOf(tx, run)
	change(&d)
	rows.Put(tx, Key(run), d, uuid.Nil)
}
