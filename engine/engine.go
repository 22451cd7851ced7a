// Package engine is the seam between the rules and what keeps their state.
//
// State is a set of rows. A [Row] has a key, a value, and two attributes the
// rules need an index for: the owner whose end takes the row along, and the
// instant at which the row is due for attention. The rules (packages
// registry, kvstore, queue, dispatch) are functions over a [Tx]; they own their
// key schemas and their values' encodings, and no engine knows either.
//
// # Contract
//
//   - Update runs fn as one transaction: atomic, serial with every other
//     Update, and durable when it returns nil. An error from fn, or from the
//     engine, changes nothing.
//   - View runs fn against one consistent state and changes nothing.
//   - Neither returns, with or without an error, before the state that fn saw
//     is durable: no answer tells of something that a crash could undo.
//   - [Tx.Put] is durable. [Tx.Touch] may be forgotten by a crash: the row
//     then comes back as it was last Put, or not at all if it never was. It
//     costs no disk write where the engine has a memory of its own.
//   - Now is the engine's running clock: it measures durations. It goes on
//     while the machine sleeps and while the state is closed, nobody can set
//     it, and it never goes back within the life of a state. So deadlines can
//     be stored. A new state begins at the wall clock's time; the two part
//     when somebody sets the wall clock.
//   - Wall is the wall clock, read by each transaction. It is for instants that
//     people name or read, and it may go back.
//   - Update returns when the machine's end could not undo what fn saw and did.
//     A caller that ends with this machine, and whoever it tells does too, may
//     ask for less: see [Local].
//   - A change wakes whoever watches its key, after it is durable.
//   - A commit that fails is final: the engine answers [ErrFailed] from then
//     on, until it is opened again.
//
// # Cold rows
//
// A row whose key starts with [Cold] is kept on disk alone, so any number of
// them takes no memory and no time to open. In exchange it has no owner and no
// due time, which need an index: a Put with either answers [ErrCold]. A Touch
// of one is a Put. Otherwise it behaves like any row: a transaction sees its own
// writes, an error undoes them, and a change wakes its watches; a Delete may wake
// them though there was no such row, as it does not look.
//
// Open does not read cold records, so it does not notice a corrupt one. Get and
// Read answer [ErrCorrupt]. Scans leave it out and report it, once: the rows around
// it are not to suffer for it.
//
// # Faults inside a transaction
//
// The methods of Tx return no error. A read that the engine cannot serve
// yields no row and poisons the transaction: whatever fn returns, Update or
// View then returns the engine's error and nothing is changed. So rules need no
// error handling for reads, and must have no effect outside their Tx that they
// could not repeat or lose.
//
// # The choice not taken
//
// An interface with typed methods per domain (Lease, Waiter, Entry, …) was the
// first draft. It put every index and every encoding into each engine, twice,
// and made the engines import the rules. Rows with an owner and a due time
// keep the rules in one place and leave an engine of a few hundred lines.
package engine

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"
)

// A Row is one record. Its zero Owner is nobody and its zero Due is never.
type Row struct {
	Key   string    // 1 to MaxKey bytes, any
	Value string    // at most MaxValue bytes, any
	Owner uuid.UUID // whose end takes the row along
	Due   time.Time // when the row is due for attention
}

// Cold is what the keys of the rows that are kept on disk alone start with.
const Cold = "~"

// ColdLog is what the keys of cold rows start with that are written once and then only
// scanned. An engine has no use for keeping the last of them at hand.
const ColdLog = Cold + "event/"

// Mark is what the keys of marks start with: rows whose value, compared as bytes,
// only rises, such as the last token that may have been issued. A Put of one is
// also kept apart from all other rows, so it does not go back even if the
// latest commits are lost. It costs more than other Puts. A mark has no owner and
// no due time.
const Mark = "!mark/"

const (
	MaxKey   = 2 << 10 // bytes in a row's key
	MaxValue = 8 << 20 // bytes in a row's value
)

// A Tx is one transaction. It is valid only inside the function it is given
// to, and only on that function's goroutine. Iterators see the rows as they
// stand when each is reached; the body may Put, Touch or Delete any row,
// including the one it was just given.
type Tx interface {
	// Now is the engine's running clock, the same throughout the transaction.
	Now() time.Time
	// Wall is the wall clock, the same throughout the transaction.
	Wall() time.Time
	// Sync makes the transaction wait for the disk even if its caller is
	// [Local]: it writes what must survive the machine.
	Sync()
	// Spent reports whether the transaction has run for as long as others may
	// wait behind it. What has much to do then leaves the rest to another
	// transaction.
	Spent() bool

	// Get returns the row under key.
	Get(key string) (Row, bool)
	// Try is Get of a cold row that the caller can do without: that the engine
	// cannot read it is told here, and poisons nothing.
	Try(key string) (Row, bool, error)
	// First returns the first row that ScanFrom would yield. For the few rows that
	// most rules look at it costs less than an iterator.
	First(prefix, from string) (Row, bool)
	// Scan yields the rows whose key starts with prefix, in key order. The
	// empty prefix does not reach the cold rows.
	Scan(prefix string) iter.Seq[Row]
	// ScanFrom is Scan without the rows whose key is less than from. It costs
	// nothing to leave those out, nor to leave out what was deleted there.
	ScanFrom(prefix, from string) iter.Seq[Row]
	// Owned yields the rows of owner, in no promised order.
	Owned(owner uuid.UUID) iter.Seq[Row]
	// Due yields the rows whose Due is before Now, earliest first.
	Due() iter.Seq[Row]

	// Put writes row durably, replacing the one under its key.
	Put(row Row)
	// Touch writes row for as long as the process lives.
	Touch(row Row)
	// Delete removes the row under key, durably if it was ever Put. A
	// missing row is no fault.
	Delete(key string)
}

// An Engine keeps rows.
type Engine interface {
	// Update runs fn in a transaction that may write.
	Update(ctx context.Context, fn func(Tx) error) error
	// View runs fn in a transaction that must not write. It holds up every
	// other transaction, so it is for reads whose length is bounded.
	View(ctx context.Context, fn func(Tx) error) error
	// Snapshot is View for long reads: fn runs against the state as it was at
	// one instant and holds up nobody. fn looks at ctx now and then. Close
	// waits for fn.
	Snapshot(ctx context.Context, fn func(Tx) error) error
	// Get gives one row, as a View would, without holding up transactions
	// while it reads from a disk.
	Get(ctx context.Context, key string) (Row, bool, error)
	// Read gives cold rows that never change and of which an answer has told
	// the caller, such as what a transaction referred to that has returned. So
	// they are durable, and Read waits for no commit, nor for transactions. A
	// row that has been deleted since is left zero.
	Read(ctx context.Context, keys ...string) ([]Row, error)
	// Watch starts to listen for changes of the row under key; the empty
	// key listens for every change. Whoever calls Watch must Stop it.
	Watch(key string) *Watch
	// WaitDue returns nil once some row's Due is before the engine's now,
	// or ctx's cause when that ends first. It also returns nil, though maybe
	// nothing is due, soon after somebody has set the wall clock: then the
	// difference of Wall and Now has changed, and whoever planned a Due for a
	// time of day plans it again.
	WaitDue(ctx context.Context) error
	// Close releases what the engine holds. Updates under way finish first;
	// later ones answer ErrClosed.
	Close() error
}

var (
	// ErrClosed answers every use of an engine after Close.
	ErrClosed = errors.New("engine: closed")

	// ErrFailed answers every use of an engine one of whose commits failed:
	// what it holds in memory may be ahead of what is stored. Open it again.
	ErrFailed = errors.New("engine: a commit failed; reopen the state to go on")

	// ErrLocked answers an Open of a state that another process has open.
	ErrLocked = errors.New("engine: state is in use by another process")

	// ErrCorrupt answers an Open that met a record it cannot read, and the
	// read of a cold row that is one. The error that wraps it names the
	// record's key.
	ErrCorrupt = errors.New("engine: corrupt record")

	// ErrTooLarge answers an Update that wrote a row over MaxKey or MaxValue.
	ErrTooLarge = errors.New("engine: row too large")

	// ErrCold answers an Update that wrote a cold row with an owner or a due
	// time.
	ErrCold = errors.New("engine: cold row with an owner or a due time")

	// ErrNoKey answers an Update that wrote a row with an empty key.
	ErrNoKey = errors.New("engine: row has no key")

	// ErrFull answers an Update that would have made the state larger while
	// its disk has little room. Nothing has changed. What deletes as much as
	// it writes or is [Needed] still succeeds; what writes little does for a
	// while, and everything does once there is room again.
	ErrFull = errors.New("engine: the disk of the state is almost full; free some space, or end or remove what is not needed")

	// ErrReadOnly answers a View that wrote.
	ErrReadOnly = errors.New("engine: write in a View")
)
