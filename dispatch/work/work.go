package work

import (
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A Status is the state of a launched actor's work.
type Status string

const (
	Pending     Status = "pending"   // ordered; no process yet
	Running     Status = "running"   // has a process
	Succeeded   Status = "succeeded" // its process ended well
	Failed      Status = "failed"
	TimedOut    Status = "timed_out"
	Cancelled   Status = "cancelled"
	SpawnFailed Status = "spawn_failed" // its process could not be started
	Lost        Status = "lost"         // it went with its launcher, and nobody knows how
)

// Final reports whether the status never changes again in this life.
func (s Status) Final() bool { return s != Pending && s != Running }

// Known reports whether s is one of the statuses.
func (s Status) Known() bool {
	switch s {
	case Pending, Running, Succeeded, Failed, TimedOut, Cancelled, SpawnFailed, Lost:
		return true
	}
	return false
}

// A Work is what a launched actor was told to do, and what came of it. Its
// prompt is in its [Order] until it ends, and what it reported in its result;
// both are cold rows.
type Work struct {
	Actor uuid.UUID
	Lead  uuid.UUID // who spawned it; zero: a root
	Life  int       // of the run, in which it was ordered last
	Met   int       // of the run, in which a spawn was answered with what became of it

	Status     Status
	Agent      string
	Model      string
	Directory  string
	Worktree   bool
	Timeout    time.Duration
	MaxWorkers int    // in the layer it leads; zero: as many as the run allows
	Auto       bool   // it was named for its lead
	Sum        []byte // of its order, to recognise the same order again

	Workers, Subleads int // names given for it as a lead, in this life

	Purse

	OrderedAt time.Time // these are wall-clock instants
	StartedAt time.Time
	EndedAt   time.Time
	Session   uuid.UUID // kept open for its process; zero until its order is handed out
	Process   process.Peer
	Stop      *Stop
	ExitCode  *int
	Signal    string
	Cause     string
	Kept      string      // where its worktree is, if that was kept
	Held      []LeaseName // at its end, the first 100
	Lost      []LeaseName // before it, as well
}

// A Stop is the order to end a process.
type Stop struct {
	Reason string
	Status Status // what its actor ends as
	At     time.Time
}

// A LeaseName is a lease that an actor held at its end, or had lost before.
type LeaseName struct {
	Scope  string // layer or run
	Key    string
	Reason string // why it was lost
}

// An Exit is how the process of an actor ended.
type Exit struct {
	Status   Status
	ExitCode *int
	Signal   string
	Cause    string
	Cost     *Money // of its own, in this life; nil: not reported
	Output   string // the end of its output: its result, if it has reported none
	Worktree string // kept, and where
}

// HandedOut reports whether the launcher has been told to start the process.
// From then on only the launcher, or the sweep, can say what becomes of it.
func (w Work) HandedOut() bool { return w.Session != uuid.Nil }

// Before reports whether a work is of a life before this one, and no spawn of
// this one has been answered with it.
func (w Work) Before(life int) bool { return w.Status.Final() && max(w.Life, w.Met) < life }

// MaxResult is how many bytes an actor's result can have.
const MaxResult = 64 << 10

// maxCause bounds what is kept of a cause, in bytes.
const maxCause = 4 << 10
