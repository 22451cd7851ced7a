// Package enginetest is the conformance suite of engines. It uses only
// [engine.Engine]: an engine that passes it keeps the contract on which the
// rules are based, wherever it stores its rows.
//
// Each test is named after the property that it proves. Tests wait for events
// and never for time to pass. If all goroutines of an engine can run in a
// synctest bubble, the suite runs in one, where times are exact.
package enginetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Harness provides the engines to test.
type Harness struct {
	// New creates a state for one test. It may use t.Cleanup.
	New func(t *testing.T) State
	// Bubble runs each test in a synctest bubble.
	Bubble bool
}

// A State is opened by one engine at a time.
type State struct {
	// Open opens the state as the last Close or Crash left it.
	Open func() (engine.Engine, error)
	// Crash makes the next Open find the state as a power cut at this instant
	// would leave it. The engine that is open continues until it is closed, and
	// what it does from now on is lost. Nil if the harness cannot do this.
	Crash func()
	// Kill is like Crash, for the end of the process only: everything that has
	// been passed to the operating system is kept.
	Kill func()
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	for _, group := range [][]test{transactions, rows, cold, iteration, durability, watches, waiting, limits, endings, locals, snapshots, models} {
		for _, test := range group {
			t.Run(test.name, func(t *testing.T) { h.run(t, test.fn) })
		}
	}
}

type test struct {
	name string
	fn   func(w *world)
}

func (h Harness) run(t *testing.T, fn func(w *world)) {
	whole := func(t *testing.T) {
		w := &world{T: t, state: h.New(t), bubble: h.Bubble}
		w.open()
		defer w.end()
		fn(w)
	}
	if h.Bubble {
		synctest.Test(t, whole)
		return
	}
	t.Parallel() // a real store mostly waits for its disk
	whole(t)
}

// A world is the environment of a test: a state, and the engine that has it
// open.
type world struct {
	*testing.T
	state  State
	bubble bool
	engine.Engine
}

func (w *world) open() {
	w.Helper()
	e, err := w.state.Open()
	if err != nil {
		w.Fatalf("open: %v", err)
	}
	w.Engine = e
}

// end checks the engine's invariants and closes it, unless the test already
// has.
func (w *world) end() {
	w.Helper()
	w.check()
	if err := w.Close(); err != nil && !errors.Is(err, engine.ErrClosed) {
		w.Errorf("close: %v", err)
	}
}

// check makes the engine check its own invariants, if it can.
func (w *world) check() {
	w.Helper()
	if c, ok := w.Engine.(interface{ Check() error }); ok {
		if err := c.Check(); err != nil && !errors.Is(err, engine.ErrClosed) {
			w.Errorf("check: %v", err)
		}
	}
}

func (w *world) reopen() {
	w.Helper()
	w.check()
	if err := w.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	w.open()
}

func (w *world) canCrash() bool { return w.state.Crash != nil }

func (w *world) crash() {
	w.Helper()
	w.state.Crash()
	w.reopen()
}

func (w *world) kill() {
	w.Helper()
	w.state.Kill()
	w.reopen()
}

// quiet waits until all goroutines are blocked. It returns false if that cannot
// be determined.
func (w *world) quiet() bool {
	if w.bubble {
		synctest.Wait()
	}
	return w.bubble
}

// update runs fn in an Update that must succeed.
func (w *world) update(fn func(tx engine.Tx)) {
	w.Helper()
	if err := w.Update(w.Context(), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		w.Fatalf("update: %v", err)
	}
}

// view runs fn in a View that must succeed.
func (w *world) view(fn func(tx engine.Tx)) {
	w.Helper()
	if err := w.View(w.Context(), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		w.Fatalf("view: %v", err)
	}
}

func (w *world) put(rows ...engine.Row) {
	w.Helper()
	w.update(func(tx engine.Tx) {
		for _, r := range rows {
			tx.Put(r)
		}
	})
}

// want compares all rows with want, in key order, by every method of reading
// them.
func (w *world) want(want ...engine.Row) {
	w.Helper()
	w.view(func(tx engine.Tx) { compare(w, tx, want) })
}

// A failer is a test, or one run of a property.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

func compare(t failer, tx engine.Tx, want []engine.Row) {
	t.Helper()
	if got := slices.SortedFunc(everything(tx), byKey); !slices.EqualFunc(got, want, same) {
		t.Errorf("rows:\n got %v\nwant %v", got, want)
	}
	compareScans(t, tx, want)
	owned := make(map[uuid.UUID][]string)
	var due []string
	for _, r := range want {
		if got, ok := tx.Get(r.Key); !ok || !same(got, r) {
			t.Errorf("get %q:\n got %v, %t\nwant %v", r.Key, got, ok, r)
		}
		owned[r.Owner] = append(owned[r.Owner], r.Key)
		if !r.Due.IsZero() && r.Due.Before(tx.Now()) {
			due = append(due, r.Key)
		}
	}
	delete(owned, uuid.Nil)
	for owner, want := range owned {
		if got := keys(slices.Collect(tx.Owned(owner, ""))); !slices.Equal(got, want) {
			t.Errorf("owned by %v:\n got %q\nwant %q", owner, got, want)
		}
	}
	var last time.Time
	var got []string
	for r := range tx.Due() {
		if r.Due.Before(last) {
			t.Errorf("due %q at %v comes after %v", r.Key, r.Due, last)
		}
		last = r.Due
		got = append(got, r.Key)
	}
	slices.Sort(got)
	if !slices.Equal(got, due) {
		t.Errorf("due:\n got %q\nwant %q", got, due)
	}
}

// compareScans compares scans from each row, and from just after it.
func compareScans(t failer, tx engine.Tx, want []engine.Row) {
	t.Helper()
	for _, r := range want {
		for _, prefix := range []string{"", engine.Cold, r.Key[:1], r.Key[:(len(r.Key)+1)/2]} {
			for _, from := range []string{r.Key, r.Key + "\x00"} {
				var inside []engine.Row
				for _, r := range want {
					if r.Key >= from && strings.HasPrefix(r.Key, prefix) && (isCold(r) == strings.HasPrefix(prefix, engine.Cold)) {
						inside = append(inside, r)
					}
				}
				if got := slices.Collect(tx.ScanFrom(prefix, from)); !slices.EqualFunc(got, inside, same) {
					t.Errorf("scan of %q from %q:\n got %v\nwant %v", prefix, from, got, inside)
				}
			}
		}
	}
}

// everything yields every row, cold ones last.
func everything(tx engine.Tx) iter.Seq[engine.Row] {
	return func(yield func(engine.Row) bool) {
		for _, prefix := range []string{"", engine.Cold} {
			for r := range tx.Scan(prefix) {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func isCold(r engine.Row) bool { return strings.HasPrefix(r.Key, engine.Cold) }

// same compares rows, and their times as instants.
func same(a, b engine.Row) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Owner == b.Owner && a.Due.Equal(b.Due)
}

func byKey(a, b engine.Row) int {
	if a.Key < b.Key {
		return -1
	}
	return 1 // keys are never equal
}

func keys(rows []engine.Row) []string {
	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}

func row(key, value string) engine.Row { return engine.Row{Key: key, Value: value} }

var (
	ann = uuid.MustParse("a0000000-0000-4000-8000-000000000001")
	bob = uuid.MustParse("b0000000-0000-4000-8000-000000000002")
)

var errRefused = errors.New("refused by the test")

// cancelled returns a context that has ended with cause.
func cancelled(w *world, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(w.Context())
	cancel(cause)
	return ctx
}
