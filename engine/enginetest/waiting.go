package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var waiting = []test{
	{"WaitDueAnswersOnceSomethingIsDue", waitDueAnswers},
	{"WaitDueAnswersAtOnceIfSomethingIsDue", waitDueAnswersAtOnce},
	{"WaitDueWakesForAnEarlierRow", waitDueWakesForAnEarlierRow},
	{"WaitDueOutlivesARowThatIsPutOff", waitDueOutlivesARowPutOff},
	{"WaitDueEndsWithItsContext", waitDueEndsWithItsContext},
	{"ManyRowsMayBeDueAtOneInstant", manyDueAtOneInstant},
	{"AStateInWhichNothingEndsRefusesUpdates", refusesUntended},
}

// soon is short enough to wait for on a real clock. In a bubble it is exact.
const soon = 20 * time.Millisecond

// dueIn puts or touches a row that is due after d, and returns that instant.
func (w *world) dueIn(key string, d time.Duration) (due time.Time) {
	w.Helper()
	w.update(func(tx engine.Tx) {
		due = tx.Now().Add(d)
		if len(key)%2 == 0 {
			tx.Touch(engine.Row{Key: key, Due: due})
		} else {
			tx.Put(engine.Row{Key: key, Due: due})
		}
	})
	return due
}

// waited checks that WaitDue has returned after something was due and, where
// time is exact, at most a millisecond after due. On a real clock it may have
// answered before a row was put off, or because the wall clock was set.
func (w *world) waited(err error, due time.Time) {
	w.Helper()
	if err != nil {
		w.Fatalf("wait due: %v", err)
	}
	n := 0
	w.view(func(tx engine.Tx) {
		for range tx.Due() {
			n++
		}
		if late := tx.Now().Sub(due); w.bubble && late > time.Millisecond {
			w.Errorf("WaitDue has answered %v late", late)
		}
	})
	switch {
	case n > 0:
	case w.bubble:
		w.Error("WaitDue has answered, and nothing is due")
	default:
		w.waited(w.WaitDue(w.Context()), due)
	}
}

func waitDueAnswers(w *world) {
	for _, d := range []time.Duration{soon, time.Millisecond, 1500 * time.Microsecond, time.Nanosecond} {
		for _, key := range []string{"put", "touched!"} {
			due := w.dueIn(key, d)
			w.waited(w.WaitDue(w.Context()), due)
			w.update(func(tx engine.Tx) { tx.Delete(key) })
		}
	}
}

func waitDueAnswersAtOnce(w *world) {
	due := w.dueIn("a", -time.Hour)
	w.dueIn("b", time.Hour)
	for range 3 { // and again as long as the row is not handled
		if err := w.WaitDue(w.Context()); err != nil {
			w.Error(err)
		}
	}
	w.reopen()
	w.waited(w.WaitDue(w.Context()), due.Add(10*time.Hour))
}

func waitDueWakesForAnEarlierRow(w *world) {
	for _, first := range []time.Duration{0, time.Hour} { // 0: nothing will ever be due
		if first != 0 {
			w.dueIn("far", first)
		}
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { errs[i] = w.WaitDue(w.Context()) })
		}
		w.quiet() // if that can be determined, all are asleep now
		due := w.dueIn("near", soon)
		wg.Wait()
		for _, err := range errs {
			w.waited(err, due)
		}
		w.update(func(tx engine.Tx) { tx.Delete("near") })
	}
}

func waitDueOutlivesARowPutOff(w *world) {
	w.dueIn("a", soon)
	done := make(chan error, 1)
	go func() { done <- w.WaitDue(w.Context()) }()
	w.quiet()
	due := w.dueIn("a", 2*soon)
	w.waited(<-done, due)
}

// manyDueAtOneInstant has as many rows that are due just before as just after
// it, in the reverse order, and postpones some while others fall due.
func manyDueAtOneInstant(w *world) {
	const n = 3000
	far := soon
	if w.bubble {
		far = time.Hour
	}
	var due time.Time
	w.update(func(tx engine.Tx) {
		due = tx.Now().Add(far)
		for i := range n {
			tx.Put(engine.Row{Key: fmt.Sprintf("at/%04d", i), Due: due})
			tx.Put(engine.Row{Key: fmt.Sprintf("before/%04d", i), Due: due.Add(time.Duration(-i))})
			tx.Put(engine.Row{Key: fmt.Sprintf("after/%04d", i), Due: due.Add(far + time.Duration(-i))})
		}
	})
	for i := range n / 10 {
		w.update(func(tx engine.Tx) {
			if r, ok := tx.Get(fmt.Sprintf("at/%04d", 10*i)); ok {
				r.Due = due.Add(far)
				tx.Touch(r)
			}
		})
	}
	for seen := 0; seen < 3*n; {
		if err := w.WaitDue(w.Context()); err != nil {
			w.Fatal(err)
		}
		w.update(func(tx engine.Tx) {
			var last engine.Row
			for r := range tx.Due() {
				if r.Due.Before(last.Due) || r.Due.Equal(last.Due) && r.Key < last.Key {
					w.Fatalf("row %q is due after row %q", r.Key, last.Key)
				}
				last = r
				tx.Delete(r.Key)
				seen++
			}
		})
	}
	w.want()
}

func waitDueEndsWithItsContext(w *world) {
	w.dueIn("a", time.Hour)
	ctx, cancel := context.WithCancelCause(w.Context())
	done := make(chan error, 1)
	go func() { done <- w.WaitDue(ctx) }()
	w.quiet()
	cancel(errRefused)
	if err := <-done; !errors.Is(err, errRefused) {
		w.Errorf("wait due: %v", err)
	}
}

// refusesUntended has a row that is due and that nobody handles. Updates are
// refused until somebody calls WaitDue, except those that end something.
func refusesUntended(w *world) {
	if !w.bubble {
		w.Skip("it takes too long on a real clock")
	}
	w.dueIn("a", time.Second)
	update := func(ctx context.Context) error {
		return w.Update(ctx, func(tx engine.Tx) error { tx.Put(engine.Row{Key: "b"}); return nil })
	}
	expect := func(when string, want error) {
		w.Helper()
		if err := update(w.Context()); !errors.Is(err, want) {
			w.Errorf("%s: %v, want %v", when, err, want)
		}
	}
	time.Sleep(time.Second)
	expect("before anything is due", nil)
	time.Sleep(time.Nanosecond)
	expect("at the first update that finds a row due", nil)
	time.Sleep(engine.UntendedFor)
	expect("a little later", nil)
	time.Sleep(time.Nanosecond)
	expect("later", engine.ErrUntended)
	if err := update(engine.Needed(w.Context())); err != nil {
		w.Errorf("an update that is needed: %v", err)
	}
	w.view(func(engine.Tx) {})
	if err := w.WaitDue(w.Context()); err != nil {
		w.Error(err)
	}
	expect("once somebody waits for what is due", nil)
	time.Sleep(time.Hour)
	expect("much later", nil)
}
