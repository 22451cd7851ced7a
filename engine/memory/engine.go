package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
)

// Options say how to open a state.
type Options struct {
	// Store opens the store of the rows. When the store cannot continue, it
	// calls fail, from any goroutine and possibly before Store returns.
	Store func(fail func(error)) (Store, error)
	// Clock is the source of time.
	Clock clock.Clock
	// Confirm is called before somebody is told the answer of a transaction, even
	// a refusal. It returns an error if another process may have the store by now.
	// If it is nil, none can.
	Confirm func() error
	// AnyMachine says that the state may have been open on another machine, so
	// that its recorded wall clock may be that machine's.
	AnyMachine bool
	// Logf receives messages for an operator. It may be called from any
	// goroutine.
	Logf func(format string, args ...any)
}

// An Engine is an open state. It is safe for concurrent use, except from within
// a transaction: a function given to Update or View must not call the engine it
// runs in.
type Engine struct {
	store Store
	lead  func() error // Options.Confirm
	logf  func(format string, args ...any)
	clock *running
	hub   engine.Hub

	leftOut sync.Map // unreadable cold rows that were already reported

	alarm engine.Hub    // wakes the callers of WaitDue when what they wait for has changed
	began atomic.Uint64 // number of transactions begun

	failure Failure

	// reading is held, shared, by those who read from the store outside mu.
	reading sync.RWMutex
	stopped bool // the store is closed, or is about to be

	mu       sync.Mutex // the single writer: one transaction at a time
	set      *set
	recent   *recent
	observer engine.Observer
	closed   bool
	tended   bool      // somebody has called WaitDue
	armed    int64     // the alarm rings if something is due earlier
	dueSince time.Time // when an Update first found a row due while !tended
	grown    int       // bytes written while the store was full

	last     *group // the last group, or nil
	open     *group // the last group while it accepts commits, or nil
	gathered []Write
	placed   map[string]int // where in gathered a kept group has the record of a hot row
	fresh    coldRows
	toDisk   bool        // all commits of the open group must survive the machine
	size     int         // of the open group, roughly, in bytes
	settling *time.Timer // runs settle; nil if nothing is only kept

	loose sync.WaitGroup // transactions for which nobody waits, until they are durable; and settle

	undo     []undo // reused by the next transaction
	writes   []Write
	coldUndo []coldUndo
}

var _ engine.Engine = (*Engine)(nil)

// Open opens the state in a store and reads the working set from it. If it
// fails, it closes the store.
func Open(o Options) (*Engine, error) {
	e := &Engine{lead: o.Confirm, logf: o.Logf, set: newSet(), recent: newRecent(), placed: make(map[string]int)}
	e.failure.Tell = e.tell
	store, err := o.Store(e.fail)
	if err != nil {
		return nil, err
	}
	e.store = store
	if err := cmp.Or(e.load(o), e.failure.Failed()); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return e, nil
}

func (e *Engine) load(o Options) (err error) {
	if err := complete(e.store); err != nil {
		return err
	}
	if e.clock, err = resume(o, e.store); err != nil {
		return err
	}
	return Each(e.store, Hot, "", "", func(it Iterator) error {
		r, err := readRow(it)
		if err == nil {
			e.set.rows.Load(r.key, r)
			e.set.index(nil, r)
		}
		return err
	})
}

// Update implements [engine.Engine]. If ctx has ended, Update does not start.
// Once fn has run, ctx no longer matters: its changes will become durable
// whether or not anybody waits, so the caller needs to know the outcome.
func (e *Engine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return e.transact(ctx, true, fn)
}

func (e *Engine) View(ctx context.Context, fn func(engine.Tx) error) error {
	return e.transact(ctx, false, fn)
}

func (e *Engine) transact(ctx context.Context, writable bool, fn func(engine.Tx) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	end := ending{tx: new(tx), needed: engine.IsNeeded(ctx), began: time.Now()}
	peek := !writable && engine.IsPeek(ctx)
	end.tx.writable, end.tx.disk = writable, !engine.IsLocal(ctx)
	// This is deferred so that after a panic, too, the caller sees only what is
	// durable.
	defer func() {
		switch {
		case peek:
		case end.loose:
			e.endLoose(end)
			return
		case end.tx.noWait && err == nil:
		default:
			engine.TurnOf(ctx).Wait()
			if failure := e.answer(end.seen, end.tx.disk); failure != nil {
				err = failure
				return
			}
		}
		e.durable(&end)
		if end.tx.pace.spent {
			end.tx.pace.rest(end.held)
		}
	}()
	e.began.Add(1)
	return e.locked(fn, &end)
}

// durable does what remains when a transaction is durable.
func (e *Engine) durable(end *ending) {
	for _, fn := range end.after {
		fn()
	}
	e.hub.Notify(end.changed...)
	if end.observer != nil {
		end.observer(time.Since(end.began))
	}
}

// endLoose sees to the end of a transaction for which nobody waits.
func (e *Engine) endLoose(end ending) {
	time.AfterFunc(looseTime, func() {
		defer e.loose.Done()
		if e.confirm(end.seen, end.tx.disk) == nil {
			e.durable(&end)
		}
	})
}

// An ending is a transaction and what remains to be done after its lock is
// released.
type ending struct {
	tx      *tx           // allocated before the lock is taken
	needed  bool          // a full store must not refuse it
	seen    *group        // the last group, which includes all that it read and wrote
	held    time.Duration // how long it held the lock
	loose   bool          // its caller does not wait for its changes
	changed []string      // keys whose watches must be notified
	after   []func()      // to be called when it is durable

	began    time.Time
	observer func(took time.Duration) // called when the transaction is durable; nil: none
}

func (e *Engine) locked(fn func(engine.Tx) error, end *ending) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := end.tx
	if err := e.refusalLocked(); err != nil {
		return err
	}
	e.begin(t)
	done := false
	defer func() {
		end.held = time.Since(t.pace.since)
		if !done {
			t.rollback()
		}
		end.seen = e.last
		e.undo, e.writes, e.coldUndo = reuse(t.undo), reuse(t.writes), reuse(t.coldUndo)
		t.e, t.set, t.store, t.recent, t.cold = nil, nil, nil, nil, nil
		t.undo, t.writes, t.coldUndo = nil, nil, nil
	}()
	if !e.tended && t.writable && !end.needed {
		if err := e.untendedLocked(t.now); err != nil {
			return err
		}
	}
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	if len(t.undo) == 0 && len(t.coldUndo) == 0 {
		done = true
		return nil
	}
	if e.full(t, end.needed) {
		return engine.ErrFull
	}
	done = true
	end.changed, end.after = t.keys(), t.after
	e.observeLocked(t)
	end.observer = e.observer.Committed
	e.gatherLocked(t)
	if end.loose = t.noWait && e.last != nil && !e.last.kept.Load(); end.loose {
		e.loose.Add(1)
	}
	if due := e.set.firstDue(); due < e.armed {
		e.armed = due
		e.alarm.NotifyAll()
	}
	return nil
}

// begin prepares t. The caller holds mu.
func (e *Engine) begin(t *tx) {
	t.e, t.set, t.store, t.recent = e, e.set, e.store, e.recent
	t.now, t.wall = e.clock.read()
	t.told = e.clock.tellBy(t.now, t.wall)
	t.pace = pace{began: &e.began, seen: e.began.Load(), since: time.Now()}
	t.undo, t.writes, t.coldUndo, t.cold = e.undo[:0], e.writes[:0], e.coldUndo[:0], &e.fresh
}

// reuse empties s for its next use, or drops it if it is large.
func reuse[T any](s []T) []T {
	if cap(s) > 1<<12 {
		return nil
	}
	clear(s)
	return s[:0]
}

// Snapshot implements [engine.Engine]. It holds the lock only while it copies
// three roots and makes a snapshot of the store.
func (e *Engine) Snapshot(ctx context.Context, fn func(engine.Tx) error) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	reader := engine.TurnOf(ctx)
	if err := reader.Begin(); err != nil {
		return err
	}
	e.reading.RLock() // Close waits for it
	defer e.reading.RUnlock()
	var t tx
	t.rests = true
	e.began.Add(1)
	e.mu.Lock()
	if err := e.refusalLocked(); err != nil {
		e.mu.Unlock()
		reader.End()
		return err
	}
	e.begin(&t)
	t.pace.reader = reader
	t.undo, t.writes, t.coldUndo = nil, nil, nil // these remain the engine's
	snapshot := e.store.Snapshot()
	t.set, t.store, t.recent, t.cold = e.set.copy(), snapshot, nil, e.fresh.Copy()
	seen := e.last
	e.mu.Unlock()

	defer func() {
		t.e = nil
		err = errors.Join(err, snapshot.Close())
		reader.End()
		engine.TurnOf(ctx).Wait()
		if failure := e.answer(seen, !engine.IsLocal(ctx)); failure != nil {
			err = failure
		}
	}()
	if err := fn(&t); err != nil {
		return err
	}
	return t.err
}

// refusalLocked returns why the engine refuses work, or nil.
func (e *Engine) refusalLocked() error {
	if e.closed {
		return engine.ErrClosed
	}
	return e.failure.Failed()
}

// fail makes err the engine's failure, unless it already has one.
func (e *Engine) fail(err error) { e.failure.Fail(fmt.Errorf("%w: %w", engine.ErrFailed, err)) }

// tell logs the failure, and wakes everyone who waits for something that will
// not happen.
func (e *Engine) tell(err error) {
	e.logf("%v", err)
	e.hub.NotifyAll()
	e.alarm.NotifyAll()
}

// Err returns why the engine has failed, or nil.
func (e *Engine) Err() error { return e.failure.Failed() }

// Hold calls first while nothing is appended to the store, and then fn, when the
// store has all commits made before the call, on disk. The store stays open: Close
// waits for fn.
func (e *Engine) Hold(first, fn func() error) error {
	e.reading.RLock()
	defer e.reading.RUnlock()
	if e.stopped {
		return engine.ErrClosed
	}
	e.mu.Lock()
	last, err := e.last, first()
	e.mu.Unlock()
	if err == nil {
		err = e.confirm(last, true)
	}
	if err != nil {
		return err
	}
	return fn()
}

func (e *Engine) Watch(key string) *engine.Watch { return e.hub.Watch(key) }

// Close implements [engine.Engine]. If it returns nil, all commits are on disk.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return engine.ErrClosed
	}
	if e.settling != nil && e.settling.Stop() {
		e.loose.Done()
	}
	e.recordClockLocked(e.clock.read())
	last := e.last
	e.closed = true
	e.mu.Unlock()

	e.hub.NotifyAll()
	e.alarm.NotifyAll()
	_ = e.confirm(last, true) // the failure is returned below
	e.loose.Wait()
	e.reading.Lock()
	e.stopped = true
	e.reading.Unlock()
	if err := e.store.Close(); err != nil {
		e.fail(err)
	}
	return e.failure.Failed()
}
