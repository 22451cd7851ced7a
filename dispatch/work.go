package dispatch

import (
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Status is where the work of a launched actor stands.
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

// Final reports whether nothing comes after s.
func (s Status) Final() bool { return s != Pending && s != Running }

func (s Status) known() bool {
	switch s {
	case Pending, Running, Succeeded, Failed, TimedOut, Cancelled, SpawnFailed, Lost:
		return true
	}
	return false
}

// A Work is what a launched actor was told to do, and what came of it. What it
// was told in words is in its [Order] until it ends, and what it reported in
// its result, both on disk alone.
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
	Sum        []byte // of its order, to know the same one again
	Call       uuid.UUID

	Workers, Subleads int // names given for it as a lead, in this life

	Purse

	OrderedAt time.Time
	StartedAt time.Time
	EndedAt   time.Time
	Session   uuid.UUID // kept open for its process; zero until its order is handed out
	Process   Peer
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
	Scope  Scope
	Key    string
	Reason string // why it was lost
}

// handedOut reports whether the launcher has been told to start its process.
// From then on nobody else can say what becomes of it.
func (w Work) handedOut() bool { return w.Session != uuid.Nil }

// An Order is what an actor is told to do, and with what.
type Order struct {
	Name      string
	Agent     string
	Model     string
	Prompt    string
	Directory string
	Env       map[string]string
	Timeout   time.Duration
	Worktree  bool
	Tools     []string
	Budget    Money
}

// What remains to be done about a work, as its row among the unfinished says.
const (
	toLaunch = "launch"
	toStop   = "stop"
	nothing  = "-"
)

const (
	workPrefix       = "work/"
	unfinishedPrefix = "unfinished/"
	orderPrefix      = engine.Cold + "work/order/"
	resultPrefix     = engine.Cold + "work/result/"
)

func workKey(actor uuid.UUID) string         { return workPrefix + string(actor[:]) }
func orderKey(actor uuid.UUID) string        { return orderPrefix + string(actor[:]) }
func resultKey(actor uuid.UUID) string       { return resultPrefix + string(actor[:]) }
func unfinishedKeys(run uuid.UUID) string    { return unfinishedPrefix + string(run[:]) }
func unfinishedKey(run, id uuid.UUID) string { return unfinishedKeys(run) + string(id[:]) }

func getWork(tx engine.Tx, actor uuid.UUID) (Work, bool) { return get[Work](tx, workKey(actor)) }
func putWork(tx engine.Tx, w Work)                       { put(tx, workKey(w.Actor), w, uuid.Nil) }

func putOrder(tx engine.Tx, actor uuid.UUID, o Order) { put(tx, orderKey(actor), o, uuid.Nil) }
func getOrder(tx engine.Tx, actor uuid.UUID) Order {
	o, _ := get[Order](tx, orderKey(actor))
	return o
}

func putUnfinished(tx engine.Tx, run, actor uuid.UUID, todo string) {
	tx.Put(engine.Row{Key: unfinishedKey(run, actor), Value: todo})
}

// unfinished yields the actors of a run whose works are not final, and what
// remains to be done about each.
func unfinished(tx engine.Tx, run uuid.UUID) iter.Seq2[uuid.UUID, string] {
	return func(yield func(uuid.UUID, string) bool) {
		prefix := unfinishedKeys(run)
		for row := range tx.Scan(prefix) {
			id, err := uuid.FromBytes([]byte(row.Key[len(prefix):]))
			if err != nil {
				panic(fmt.Sprintf("dispatch: row %q: %v", row.Key, err))
			}
			if !yield(id, row.Value) {
				return
			}
		}
	}
}

// resultOf is what an actor reported, or its last output; nil: nothing.
func resultOf(tx engine.Tx, actor uuid.UUID) json.RawMessage {
	row, ok := tx.Get(resultKey(actor))
	if !ok {
		return nil
	}
	return json.RawMessage(row.Value)
}

// dropWork removes all that is kept of an actor's work.
func dropWork(tx engine.Tx, actor uuid.UUID) {
	tx.Delete(workKey(actor))
	tx.Delete(orderKey(actor))
	tx.Delete(resultKey(actor))
}
