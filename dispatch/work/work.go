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
	Succeeded   Status = "succeeded" // its process ended without an error
	Failed      Status = "failed"
	TimedOut    Status = "timed_out"
	Cancelled   Status = "cancelled"
	SpawnFailed Status = "spawn_failed" // its process could not be started
	Lost        Status = "lost"         // it ended while its launcher was gone, so nobody knows how
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

// A Work is the order of a launched actor and its outcome. The prompt is in the
// [Order], which is kept until the actor ends. The report is in the result.
// Both are cold rows.
type Work struct {
	Actor uuid.UUID
	Lead  uuid.UUID // the actor that spawned it; zero: a root
	Life  int       // the life of the run in which it was last ordered
	Met   int       // the life of the run in which a spawn last returned its old result

	Status     Status
	Agent      string
	Model      string
	Directory  string
	Placement         // as it was asked for, until Machine is the one that was chosen
	Instance   string `json:",omitempty"` // of the launcher that its order was handed out to
	Remote     bool   `json:",omitempty"` // that is connected as a client elsewhere, and so is the process
	Logs       string `json:",omitempty"` // directory of what it writes, on the machine of that launcher
	MaxWorkers int    // in the layer it leads; zero: as many as the run allows
	Auto       bool   // it was named for its lead
	Sum        []byte // of its order, to recognise the same order again

	Workers, Subleads int // names generated for its children in this life

	Purse

	StartedAt time.Time // instants of the wall clock
	EndedAt   time.Time
	Session   uuid.UUID // kept open for its process; zero until its order is handed out
	Process   process.Peer
	Stop      *Stop
	ExitCode  *int
	Signal    string
	Cause     string
	Kept      string      // path of its worktree, if that was kept
	Held      []LeaseName // leases held at its end, at most MaxLeaseNames
	Lost      []LeaseName // leases lost before its end, at most MaxLeaseNames
}

// A Stop is the order to end a process.
type Stop struct {
	Reason string
	Status Status // the status that its actor ends with
	// Undone says that the call that spawned it was cancelled: it can be sent again.
	Undone bool `json:",omitempty"`
}

// A LeaseName is a lease or claim that an actor held when it ended, or had lost before.
type LeaseName struct {
	Scope  string // layer, run, or queue for a claim
	Key    string // of a claim: the task
	Reason string // why it was lost
}

// An Exit is how the process of an actor ended.
type Exit struct {
	Status   Status
	ExitCode *int
	Signal   string
	Cause    string
	Cost     *Money // of the actor itself, in this life; nil: not reported
	Output   string // the end of its output, which is its result if it has not reported one
	Worktree string // path of its worktree, if that is kept
}

// HandedOut reports whether the launcher has been told to start the process.
// From then on only the launcher or the sweep can make the work final.
func (w Work) HandedOut() bool { return w.Session != uuid.Nil }

// Before reports whether a work ended in an earlier life and no spawn of this
// life has returned its result.
func (w Work) Before(life int) bool { return w.Status.Final() && max(w.Life, w.Met) < life }

// MaxResult is the greatest size of an actor's result in bytes.
const MaxResult = 64 << 10

// maxCause is the greatest stored size of a cause in bytes.
const maxCause = 4 << 10
