// Package cluster decides which server leads which partition of a database that
// several servers share.
//
// A [Member] is this server in the cluster. It registers and then sends beats:
// each raises a number in its row of the database. It reads the rows of the
// other servers, takes the lead of the partitions that it should lead, and
// gives up those that another should lead.
//
// # Contract
//
//   - At any instant at most one server answers for a partition. A leader calls
//     [Term.Confirm] between the work and each answer.
//   - A server that stops first gives up what it leads, and the others take it at
//     their next look. A server that is dead, paused or cut off from the database
//     loses what it leads after [Timing].Dead.
//   - The partitions are shared evenly. When a server joins or leaves, only as many
//     partitions move as that requires.
//   - While no server reaches the database, no server loses anything.
//
// # Time
//
// The clocks of two machines are never compared. A server that has sent a beat
// may answer until Hold after that instant of its own running clock, if the
// beat succeeds. Another server that has read the beat's number waits, by its
// own running clock, for Dead after that. If the number is then still the same,
// it removes the server, in one statement. Dead is well above Hold, so that
// clocks may run at different rates. A server learns of its removal at its next
// beat.
//
// An observer that missed looks, or did not reach the database, starts to wait
// again from the beginning. Otherwise all servers would be taken for dead when
// a database comes back.
//
// # Epochs
//
// Terms protect reads. Commits need no clock: each carries the epoch of its
// partition, which rises when a server takes the lead; see package postgres.
package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// A Server is a registered server. Its id is valid for one registration.
type Server struct {
	ID       uuid.UUID
	Address  string // where the other servers reach it; "": they cannot
	Process  string // identifies its process on its machine
	Beats    int64
	Draining bool // it should lead nothing

	// Information for people.
	Name        string // of its machine
	Version     string
	Connections int64 // of clients, at its last beat
}

// A Partition is one of the states in the database.
type Partition struct {
	Number int64
	Epoch  int64     // how often its lead was taken
	Leader uuid.UUID // a registration, which may have ended; zero: the lead was given up

	// Seen is the greatest Epoch that this server has read. If it is greater than
	// Epoch, the database went back in time. A [Database] leaves it out.
	Seen int64
}

// A Look is what a server reads about a cluster.
type Look struct {
	Servers    []Server // the registered ones
	Partitions []Partition
}

// A Database is where the servers of a cluster register. What its methods write
// is durable when they return.
type Database interface {
	// Register adds a server.
	Register(ctx context.Context, s Server) error
	// Beat raises the beats of a server, stores its number of connections, and
	// returns a look. there is false if the server is no longer registered.
	Beat(ctx context.Context, id uuid.UUID, connections int64) (look Look, there bool, err error)
	// Remove removes a server if it has not beaten since.
	Remove(ctx context.Context, id uuid.UUID, beats int64) error
	// Drain marks a server as one that should lead nothing.
	Drain(ctx context.Context, id uuid.UUID) error
	// Leave removes a server that leads nothing.
	Leave(ctx context.Context, id uuid.UUID) error
	// Release gives up the lead of a partition, if the server has it.
	Release(ctx context.Context, partition int64, leader uuid.UUID) error
}

// Timing has the times of a cluster. The zero value is for production. All
// servers of a cluster must use the same.
type Timing struct {
	Every time.Duration // between beats; 500 ms
	Hold  time.Duration // how long a server may answer after it sent a beat; 3 s
	Dead  time.Duration // after this long without a beat a server is removed; 5 s
	Quit  time.Duration // after this long without a successful beat a server gives up by itself; 15 s
}

func (t Timing) withDefaults() Timing {
	if t == (Timing{}) {
		t = Timing{500 * time.Millisecond, 3 * time.Second, 5 * time.Second, 15 * time.Second}
	}
	return t
}

// ErrBack says that the database has an earlier state than this server has seen:
// it was restored from a copy, or is another primary than before.
var ErrBack = errors.New("the database went back in time")

// ErrGone says that the database has lost the row of a partition, which nobody can
// lead without it.
var ErrGone = errors.New("the database has no row of a partition that it had")

// ErrTwice says that clients who are passed on to this server may reach another, which
// cannot serve them.
var ErrTwice = errors.New("another server has the same address")

// ErrOver is the reason why a term has ended, unless the server stops: the
// others have removed the server, or it could not beat for too long.
var ErrOver = errors.New("this server leads no more: the others have not heard from it, or it has not reached the database")
