// Package engine is the interface between the rules and the storage of their
// state.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// State is a set of rows. A [Row] has a key, a value and two attributes that
// the rules need an index for: the owner, with whose end the row is removed,
// and the instant at which the row is due for attention. The rules (packages
// registry, kvstore, queue, dispatch) are functions over a [Tx]. They define
// their key schemas and the encodings of their values, and no engine depends on
// either.
//
// # Contract
//
//   - Update runs fn as one transaction: atomic, serial with every other Update,
//     and durable when it returns nil. An error from fn, or from the engine,
//     changes nothing.
//   - View runs fn against one consistent state and changes nothing.
//   - Neither returns, with or without an error, before the state that fn saw is
//     durable. So no answer reveals a state that a crash could undo.
//   - [Tx.Put] is durable. A [Tx.Touch] may be lost in a crash: the row then has
//     the value of its last Put, or is missing if there was none. A Touch costs
//     no disk write in an engine that keeps rows in memory.
//   - Now is the engine's running clock, which measures durations. It runs while
//     the machine sleeps and while the state is closed, cannot be set, and never
//     goes back during the life of a state. So deadlines can be stored. In a new
//     state it starts at the time of the wall clock; the two differ once the
//     wall clock has been set.
//   - Wall is the wall clock, read for each transaction. It is for instants that
//     people name or read. It may go back.
//   - Update returns once a crash of the machine can no longer undo what fn saw
//     and did. A caller for which surviving a crash of the daemon is enough may
//     ask for less: see [Local].
//   - A change wakes the watches of its key after it is durable.
//   - An Update that is marked with [Tx.NoWait] returns earlier. Whoever else
//     sees what it did waits as for any other.
//   - Nothing expires by itself: somebody must call WaitDue, and handle what is
//     due. If nobody ever has, Updates are refused with [ErrUntended] from
//     [UntendedFor] after the first of them that finds a row due.
//   - A failed commit is final: from then on the engine returns [ErrFailed],
//     until it is opened again.
//
// # Cold rows
//
// A row whose key starts with [Cold] is kept only on disk, so any number of
// such rows takes no memory and no time to open. In exchange it has no owner
// and no due time, which would need an index: a Put with either returns
// [ErrCold]. A Touch of a cold row is a Put. Otherwise it behaves like any row:
// a transaction sees its own writes, an error undoes them, and a change wakes
// its watches. A Delete may wake them even if there was no such row, because it
// does not check.
//
// Open does not read cold records, so it does not detect a corrupt one. Get
// then returns [ErrCorrupt]. Scans leave the corrupt row out and report it
// once, so that the rows around it stay readable.
//
// # Faults inside a transaction
//
// The methods of Tx return no error. A read that the engine cannot perform
// yields no row and poisons the transaction: whatever fn returns, Update or
// View then returns the engine's error, and nothing is changed. So rules need
// no error handling for reads. They must have no effect outside their Tx that
// could not be repeated or lost.
//
// # The choice not taken
//
// The first draft was an interface with typed methods for each domain (Lease,
// Waiter, Entry, …). It put every index and every encoding into each engine,
// and made the engines import the rules. Rows with an owner and a due time keep
// the rules in one place and an engine small.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine/record"
)

// A Row is one record. A zero Owner means no owner, and a zero Due means never
// due.
type Row struct {
	Key   string    // 1 to MaxKey bytes, any
	Value string    // at most MaxValue bytes, any
	Owner uuid.UUID // the row is removed with the end of its owner
	Due   time.Time // when the row is due for attention
}

// Cold is the prefix of the keys of rows that are kept only on disk.
const Cold = "~"

// ColdLog is the prefix of the keys of cold rows that are written once and then
// only scanned. An engine need not cache the latest of them.
const ColdLog = Cold + "event/"

// Mark is the prefix of the keys of marks. The value of a mark, compared as
// bytes, only rises; an example is the last token that may have been issued. A
// Put of a mark is also stored apart from all other rows, so it does not go
// back even if the latest commits are lost. It costs more than other Puts. A
// mark has no owner and no due time.
const Mark = "!mark/"

// CopyKey is the key of [CopyRow].
const CopyKey = "backup"

// CopyRow is a row that only a copy of a state has: a backup, or what an engine
// has found to be a copy. It says since when, by the wall clock, the original may
// have changed.
func CopyRow(since time.Time) Row {
	return Row{Key: CopyKey, Value: record.Fixed(uint64(since.UnixNano()))}
}

// UntendedFor is how long Updates succeed although a row is due and nobody has
// ever called WaitDue. A daemon begins to do so as soon as its state is open.
const UntendedFor = 5 * time.Second

const (
	MaxKey   = 2 << 10 // bytes in a row's key
	MaxValue = 8 << 20 // bytes in a row's value
)

// A Tx is one transaction. It is valid only within the function it is passed
// to, and only on that function's goroutine. An iterator yields each row as it
// is when the iteration reaches it. The loop body may Put, Touch or Delete any
// row, including the current one.
type Tx interface {
	// Now is the engine's running clock, the same throughout the transaction.
	Now() time.Time
	// Wall is the wall clock, the same throughout the transaction.
	Wall() time.Time
	// WallAt is what the wall clock says at an instant of the running clock. It
	// is the same in each transaction, until the wall clock has moved against
	// the running clock by a millisecond.
	WallAt(running time.Time) time.Time
	// Sync makes the transaction wait for the disk even if its caller is
	// [Local], because it writes something that must survive the machine.
	Sync()
	// NoWait says that the caller tells nobody what the transaction saw or did,
	// until a later transaction of it has returned. Update then does not wait
	// for the disk: the changes become durable with the next commit, or within
	// a few milliseconds.
	NoWait()
	// AfterCommit has fn called once the transaction is durable, before it wakes
	// any watch. fn must return at once. It is not called if the transaction
	// has changed nothing, or has failed.
	AfterCommit(fn func())
	// Spent reports whether the transaction has run for as long as others may
	// be made to wait. A long operation then leaves the rest to another
	// transaction.
	Spent() bool

	// Get returns the row under key.
	Get(key string) (Row, bool)
	// Try is Get for a cold row that the caller can do without. If its record is
	// corrupt, Try returns [ErrCorrupt] and does not poison the transaction.
	Try(key string) (Row, bool, error)
	// First returns the first row that ScanFrom would yield. It costs less than
	// an iterator, which matters for the few rows that most rules read.
	First(prefix, from string) (Row, bool)
	// Scan yields the rows whose key starts with prefix, in key order. The
	// empty prefix does not include the cold rows.
	Scan(prefix string) iter.Seq[Row]
	// ScanFrom is Scan without the rows whose key is less than from. Skipping
	// these rows costs nothing, and neither does skipping deleted ones there.
	ScanFrom(prefix, from string) iter.Seq[Row]
	// Owned yields the rows of owner whose key starts with prefix, in key order.
	Owned(owner uuid.UUID, prefix string) iter.Seq[Row]
	// Due yields the rows whose Due is before Now, earliest first.
	Due() iter.Seq[Row]

	// Put writes row durably, replacing the one under its key.
	Put(row Row)
	// Touch writes row in memory, where it may be lost in a crash.
	Touch(row Row)
	// Delete removes the row under key, durably if it was ever Put. A missing
	// row is no error.
	Delete(key string)
}

// An Engine stores rows.
type Engine interface {
	// Update runs fn in a transaction that may write.
	Update(ctx context.Context, fn func(Tx) error) error
	// View runs fn in a transaction that must not write. It blocks every other
	// transaction, so it is for short reads.
	View(ctx context.Context, fn func(Tx) error) error
	// Snapshot is View for long reads: fn runs against the state as it was at
	// one instant and blocks nobody. fn should check ctx from time to time.
	// Close waits for fn.
	Snapshot(ctx context.Context, fn func(Tx) error) error
	// Get returns one row, as a View would, but blocks no transaction while it
	// reads from disk.
	Get(ctx context.Context, key string) (Row, bool, error)
	// Watch starts a watch for changes of the row under key; the empty key
	// means all changes. The caller must Stop it.
	Watch(key string) *Watch
	// WaitDue returns nil once the Due of some row is before the engine's now,
	// or ctx's cause if that ends first. One caller also gets nil soon after
	// the wall clock has been set, even if nothing is due: the difference
	// between Wall and Now has changed, so a Due that was computed from a time
	// of day must be computed again.
	WaitDue(ctx context.Context) error
	// Close releases the engine's resources. Updates in progress finish first;
	// later ones return ErrClosed.
	Close() error
}

var (
	// ErrClosed is returned by every use of an engine after Close.
	ErrClosed = errors.New("engine: closed")

	// ErrFailed is returned by every use of an engine after a commit has
	// failed, because its memory may be ahead of what is stored. Open it again.
	ErrFailed = errors.New("engine: a commit failed; reopen the state to go on")

	// ErrLocked is returned by Open if another process has the state open.
	ErrLocked = errors.New("engine: state is in use by another process")

	// ErrCorrupt is returned by Open if it finds a record that it cannot read,
	// and by the read of such a cold row. The error that wraps it names the key
	// of the record.
	ErrCorrupt = errors.New("engine: corrupt record")

	// ErrNewer is returned by Open, also by that of a package on top, if a later
	// version has written the state. Nothing was changed.
	ErrNewer = errors.New("a later version of leasehold has written this state")

	// ErrTooLarge is returned by an Update that wrote a row over MaxKey or
	// MaxValue.
	ErrTooLarge = errors.New("engine: row too large")

	// ErrCold is returned by an Update that wrote a cold row with an owner or a
	// due time.
	ErrCold = errors.New("engine: cold row with an owner or a due time")

	// ErrNoKey is returned by an Update that wrote a row with an empty key.
	ErrNoKey = errors.New("engine: row has no key")

	// ErrFull is returned by an Update that would have made the state larger
	// while its disk is almost full. Nothing has changed. An Update that
	// deletes as much as it writes, or that is [Needed], still succeeds. A
	// small one succeeds for a while. All succeed again once there is room.
	ErrFull = errors.New("engine: the disk of the state is almost full; free some space, or end or remove what is not needed")

	// ErrUntended is returned by an Update that is not [Needed] if rows are due
	// and nobody has ever called WaitDue: leases and claims of this state would
	// never end.
	ErrUntended = errors.New("engine: leases, claims or delays are over, and nothing in this process ends them; programs use package client, and whoever opens a state runs dispatch.State.Tend")

	// ErrReadOnly is returned by a View that wrote.
	ErrReadOnly = errors.New("engine: write in a View")
)
