// Package cluster decides which server leads which partition of a database that
// several servers share.
//
// A [Member] is this server among them. It registers, and from then on beats: it
// raises a number in its row of the database. It looks at the rows of the others,
// takes what it is to lead, and gives up what another is to lead.
//
// # Contract
//
//   - At any instant at most one server answers for a partition. A server that leads
//     asks [Term.Confirm] between the work and each answer.
//   - A server that stops gives up what it leads first, and the others take it with
//     their next look. One that is dead, paused or cut off from the database loses
//     what it leads after [Timing].Dead.
//   - The partitions are shared evenly. What another server joins or leaves for is
//     all that moves.
//   - While nobody reaches the database, nobody loses anything.
//
// # Time
//
// The clocks of two machines are never compared. A server that has sent a beat at
// some instant of its own running clock may answer until Hold after that instant, if
// the beat succeeds. Another that has read the beat's number at some later instant
// waits, by its own running clock, for Dead after it, and then removes the server if
// the number is still the same, in one statement. Dead is well above Hold, so that
// clocks may run at different rates. Whoever was removed learns it by its next beat.
//
// An observer that missed looks itself, or did not reach the database, begins to wait
// anew: else all would be taken for dead once a database is back.
//
// # Epochs
//
// Terms protect reads. Commits need no clock: each carries the epoch of its partition,
// which rises when somebody takes the lead; see package postgres.
package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// A Server is one as it is registered. Its id lasts for one registration.
type Server struct {
	ID       uuid.UUID
	Address  string // where the others reach it; "": nowhere
	Process  string // names it on its machine
	Beats    int64
	Draining bool // it is to lead nothing

	// For people.
	Name        string // of its machine
	Version     string
	Connections int64 // of clients, as of its last beat
}

// A Partition is a state in the database.
type Partition struct {
	Number int64
	Epoch  int64     // how often it was taken
	Leader uuid.UUID // a registration, which may be over; zero: it was given up
}

// A Look is what a server sees of a cluster.
type Look struct {
	Servers    []Server // that are registered
	Partitions []Partition
}

// A Database is where servers meet. What its methods write is durable when they
// return.
type Database interface {
	// Register adds a server.
	Register(ctx context.Context, s Server) error
	// Beat raises the beats of a server, notes its connections and looks. There is false
	// if the server is not registered any more.
	Beat(ctx context.Context, id uuid.UUID, connections int64) (look Look, there bool, err error)
	// Remove takes a server out if its beats are still what they were.
	Remove(ctx context.Context, id uuid.UUID, beats int64) error
	// Drain marks a server as one that is to lead nothing.
	Drain(ctx context.Context, id uuid.UUID) error
	// Leave takes a server out that leads nothing.
	Leave(ctx context.Context, id uuid.UUID) error
	// Release gives up a partition, if the server is its leader.
	Release(ctx context.Context, partition int64, leader uuid.UUID) error
}

// Timing says how fast a cluster is. Its zero value is a production one. All servers
// of a cluster have the same.
type Timing struct {
	Every time.Duration // between beats; 500 ms
	Hold  time.Duration // after a beat was sent a server may answer for this long; 3 s
	Dead  time.Duration // a server that has not beaten for this long is removed; 5 s
	Quit  time.Duration // a server that cannot beat for this long gives up by itself; 15 s
}

func (t Timing) withDefaults() Timing {
	if t == (Timing{}) {
		t = Timing{500 * time.Millisecond, 3 * time.Second, 5 * time.Second, 15 * time.Second}
	}
	return t
}

// ErrOver is why a term ends, but for a server that stops: others have removed the
// server, or it could not beat for too long.
var ErrOver = errors.New("this server leads no more: the others have not heard from it, or it has not reached the database")
