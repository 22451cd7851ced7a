package event

import (
	"iter"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/record"
)

// A Kind is what happened in an event.
type Kind byte

// Kinds of events. Their numbers are stored, so a new kind is added at the end.
const (
	LeaseGranted    Kind = iota + 1
	LeaseHandedOver      // granted to the first waiter when the key became free
	LeaseWaiting         // joined the line; By holds the key
	LeaseAdopted         // by another session or sub-agent of its actor, with a new token
	LeaseReleased        // Cause says why: released, session ended, …
	LeaseExpired
	LeaseRevived // renewed after it expired, because its key was still free
	LeaseRevoked
	LeaseOffered // to By; By is empty if the offer was withdrawn
	WriteRefused // it needed a lease or claim that By holds now
	Deadlock     // a request that was refused because it would have closed a cycle
	SessionBegan
	SessionEnded
	ActorBegan
	ActorEnded
	TaskEnqueued
	TaskReady // its delay is over
	TaskClaimed
	TaskReturned // for another attempt: nack, abandon, expiry, end of a session, …
	TaskCompleted
	TaskFailed
	TaskDead
	TaskCancelled
	TaskRedriven
	WriteOverruled // to a file that By holds; the guard was set to refuse nothing
	LeaseWaitEnded // left the line
	MessageSent    // to By; Key is the id of the message
	MessageRecalled
	FileChanged // a file that By holds changed while a shell command ran
	QueuePaused // by Path
	QueueResumed
)

var kinds = [...]string{
	LeaseGranted: "lease_granted", LeaseHandedOver: "lease_handed_over", LeaseWaiting: "lease_waiting",
	LeaseAdopted: "lease_adopted", LeaseReleased: "lease_released", LeaseExpired: "lease_expired",
	LeaseRevived: "lease_revived", LeaseRevoked: "lease_revoked", LeaseOffered: "lease_offered",
	WriteRefused: "write_refused", Deadlock: "deadlock",
	SessionBegan: "session_began", SessionEnded: "session_ended", ActorBegan: "actor_began", ActorEnded: "actor_ended",
	TaskEnqueued: "task_enqueued", TaskReady: "task_ready", TaskClaimed: "task_claimed", TaskReturned: "task_returned",
	TaskCompleted: "task_completed", TaskFailed: "task_failed", TaskDead: "task_dead", TaskCancelled: "task_cancelled",
	TaskRedriven: "task_redriven", WriteOverruled: "write_overruled", LeaseWaitEnded: "lease_wait_ended",
	MessageSent: "message_sent", MessageRecalled: "message_recalled", FileChanged: "file_changed",
	QueuePaused: "queue_paused", QueueResumed: "queue_resumed",
}

// Kinds yields all kinds.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := LeaseGranted; int(k) < len(kinds) && yield(k); k++ {
		}
	}
}

// String returns the name of the kind that users see.
func (k Kind) String() string { return kinds[k] }

// An Event describes something that happened. Fields that do not apply to its
// kind are zero.
type Event struct {
	Revision uint64    // from [NextBoth], or set by [Record]
	At       time.Time // by the wall clock
	Kind     Kind
	Layer    string // path of the lead of the lease's layer; "": a lease of the run
	Queue    string // of a task
	Key      string // of a lease; the id of a task, session or message
	Token    uint64 // of the lease or claim
	Shared   bool
	Actor    uuid.UUID // the actor of the lease, claim, task or session
	Path     string    // of that actor
	Party    string    // the sub-agent of that actor
	By       string    // path of another actor, see the kinds
	Cause    string
	Reason   string // as an actor gave it

	// Took is how long the grant was waited for, or how long the ended lease
	// was held. Zero: unknown.
	Took time.Duration
}

// Who names a party for readers: an actor by its path, and which of its agents it is.
func Who(path, party string) string {
	if party == "" {
		return path
	}
	return path + " (as " + party + ")"
}

const (
	Prefix          = engine.ColdLog // of the keys of events
	compactedPrefix = "compacted/"
	format          = 2
)

func keysOf(run uuid.UUID) string          { return Prefix + string(run[:]) }
func keyOf(run uuid.UUID, n uint64) string { return keysOf(run) + record.Fixed(n) }
func compactedKey(run uuid.UUID) string    { return compactedPrefix + string(run[:]) }
func revisionOf(row engine.Row) (n uint64) { return record.ReadFixed(row.Key[len(row.Key)-8:]) }

// runOf returns the run of a row under prefix.
func runOf(row engine.Row, prefix string) (run uuid.UUID) {
	copy(run[:], row.Key[len(prefix):])
	return run
}

// Record writes an event of a run. Events outside all runs, for which run is
// zero, are not recorded.
func Record(tx engine.Tx, run uuid.UUID, e Event) {
	if run == uuid.Nil {
		return
	}
	if e.Revision == 0 {
		e.Revision = issue(tx, 0, 1).Revision
	}
	e.At = tx.Wall()
	tx.Put(e.row(run))
}

// Size is the number of bytes in the texts of the event.
func (e *Event) Size() int {
	return len(e.Path) + len(e.Key) + len(e.Layer) + len(e.Queue) + len(e.Party) + len(e.By) + len(e.Cause) + len(e.Reason)
}

// row returns the event as it is stored. Key and value share one allocation.
func (e *Event) row(run uuid.UUID) engine.Row {
	w := record.New(len(Prefix) + 24 + 60 + e.Size())
	w.Rest(Prefix)
	w.ID(run)
	w.Fixed(e.Revision)
	key := w.Len()
	w.Byte(format)
	w.Byte(byte(e.Kind))
	w.Flags(e.Shared)
	w.Time(e.At)
	w.Uint(e.Token)
	w.Duration(e.Took)
	w.ID(e.Actor)
	w.Texts(e.Path, e.Key, e.Layer, e.Queue, e.Party, e.By, e.Cause, e.Reason)
	both := w.String()
	return engine.Row{Key: both[:key], Value: both[key:]}
}

// Parse decodes an event from its row.
func Parse(row engine.Row) (e Event, ok bool) {
	if len(row.Key) != len(Prefix)+24 {
		return e, false
	}
	r := record.Read(row.Value)
	written := r.Byte()
	e.Revision, e.Kind = revisionOf(row), Kind(r.Byte())
	r.Flags(&e.Shared)
	e.At, e.Token, e.Took, e.Actor = r.Time(), r.Uint(), r.Duration(), r.ID()
	e.Path, e.Key, e.Layer, e.Queue = r.Text(), r.Text(), r.Text(), r.Text()
	e.Party, e.By, e.Cause, e.Reason = r.Text(), r.Text(), r.Text(), r.Text()
	return e, written == format && r.Done() && e.Kind > 0 && int(e.Kind) < len(kinds)
}

// Lease reports whether events of this kind change who holds a lease or waits
// for one.
func (k Kind) Lease() bool { return strings.HasPrefix(k.String(), "lease_") }
