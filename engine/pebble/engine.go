package pebble

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
)

// Options say where and how to open a state.
type Options struct {
	// Dir is the directory of the state. It is made, for its owner alone,
	// if there is none.
	Dir string
	// Logf is told what an operator should know, such as a failing disk. It
	// may be called from any goroutine. Nil discards.
	Logf func(format string, args ...any)
	// FS is where Dir is: nil is the real disk. It is for tests.
	FS vfs.FS
}

// An Engine is an open state. It is safe for concurrent use, but not from
// within a transaction: a function given to Update or View must not call the
// engine it runs in.
type Engine struct {
	db    *pebble.DB
	fs    *stateFS
	logf  func(format string, args ...any)
	clock clock
	hub   engine.Hub
	alarm alarm

	// wakeCollector ends the rest that began with Open.
	wakeCollector func()

	// failure is the first failure of a commit. It is set at most once, by
	// whoever meets it, with or without mu.
	failure atomic.Pointer[error]

	// appending is held while a commit is closed and appended to the log.
	// Whoever holds it may take mu, and not the other way round.
	appending sync.Mutex
	usedRows  []stored     // of a commit that was appended, for another
	usedAgain map[*row]int // likewise

	// carried is the last commit that was given to Pebble, or is about to
	// be: what is read from the store is of it or of one before.
	carried atomic.Pointer[commit]

	// reading is held, together with others, by who reads from the store
	// outside mu.
	reading sync.RWMutex
	stopped bool // the store is closed, or about to be

	mu      sync.Mutex // the single writer: one transaction at a time
	mem     *memory
	overlay overlay
	recent  *recent
	open    *commit // takes the writes of transactions, or nil
	last    *commit // the last one begun
	spare   *commit // becomes the next to be open, or nil
	closed  bool
	pace    pace
	undo    []undo // for the next transaction to use again
	writes  []write
	cold    coldSet
}

var _ engine.Engine = (*Engine)(nil)

// Update implements [engine.Engine]. A ctx that has ended stops it from
// starting, and nothing else: what fn has done will be durable whether or not
// anybody waits, so the outcome is what the caller needs, and the wait for the
// lock is short, as nobody does I/O in there.
func (e *Engine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return e.transact(ctx, true, fn)
}

// View implements [engine.Engine].
func (e *Engine) View(ctx context.Context, fn func(engine.Tx) error) error {
	return e.transact(ctx, false, fn)
}

// Snapshot implements [engine.Engine].
func (e *Engine) Snapshot(ctx context.Context, fn func(engine.Tx) error) error {
	return e.transact(ctx, false, fn)
}

func (e *Engine) transact(ctx context.Context, writable bool, fn func(engine.Tx) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	end := ending{tx: tx{writable: writable}}
	// Deferred so that a panic, too, leaves only with what is durable.
	defer func() {
		if failure := e.settle(&end); failure != nil {
			err = failure
		}
	}()
	return e.locked(fn, &end)
}

// An ending is a transaction, and what is left to do of it after the lock.
type ending struct {
	tx      tx       // here so that no memory is asked for in the lock
	seen    *commit  // what it has seen is durable when this is
	mine    bool     // seen is its own commit
	changed []string // the keys to tell the watches of
}

func (e *Engine) locked(fn func(engine.Tx) error, end *ending) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &end.tx
	for t.writable && e.open != nil && e.open.size > fullCommit {
		full := e.open
		e.mu.Unlock()
		_ = full.wait() // a failure is told below
		e.mu.Lock()
	}
	if err := e.refusalLocked(); err != nil {
		return err
	}
	e.wakeCollector()
	e.overlay.drop()
	t.e, t.now = e, e.clock.now()
	t.undo, t.writes, t.cold = e.undo[:0], e.writes[:0], e.cold
	done := false
	defer func() {
		if !done {
			t.rollback()
		}
		end.seen = e.last
		t.endWalks()
		e.undo, e.writes, e.cold = reuse(t.undo), reuse(t.writes), t.cold.emptied()
		t.e, t.undo, t.writes, t.cold = nil, nil, nil, coldSet{}
	}()
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	done = true
	if len(t.undo) == 0 && t.cold.n == 0 {
		return nil
	}
	if !e.hub.Idle() {
		end.changed = t.keys() // before its cold writes are the commit's
	}
	e.recordLocked(t, end)
	e.alarm.set(e.wakeLocked(t.now))
	return nil
}

// reuse empties s for its next use. It lets go of a large one.
func reuse[T any](s []T) []T {
	if cap(s) > 1<<12 {
		return nil
	}
	clear(s)
	return s[:0]
}

// refusalLocked tells why the engine does not take work, if so.
func (e *Engine) refusalLocked() error {
	if e.closed {
		return engine.ErrClosed
	}
	return e.failed()
}

// Watch implements [engine.Engine].
func (e *Engine) Watch(key string) *engine.Watch { return e.hub.Watch(key) }

// Close implements [engine.Engine].
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return engine.ErrClosed
	}
	e.closed = true
	last := e.last
	e.mu.Unlock()

	e.hub.NotifyAll()
	e.alarm.ring()
	// When the last commit is durable, or has failed, so are all before it.
	_ = last.wait()
	e.reading.Lock()
	e.stopped = true
	e.reading.Unlock()
	if err := e.db.Close(); err != nil {
		e.fail(err)
	}
	return e.failed()
}
