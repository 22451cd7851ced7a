package enginetest

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var transactions = []test{
	{"AnErrorChangesNothing", anErrorChangesNothing},
	{"APanicChangesNothing", aPanicChangesNothing},
	{"AnExitChangesNothing", anExitChangesNothing},
	{"AnErrorIsGivenBack", anErrorIsGivenBack},
	{"ATransactionReadsItsOwnWrites", aTransactionReadsItsOwnWrites},
	{"UpdatesAreSerial", updatesAreSerial},
	{"AViewSeesWholeTransactions", aViewSeesWholeTransactions},
	{"AViewCannotWrite", aViewCannotWrite},
	{"NowStandsStillInATransactionAndNeverGoesBack", nowNeverGoesBack},
	{"AnEndedContextStartsNothing", anEndedContextStartsNothing},
	{"ACheckIsTrueWhileOthersCommit", aCheckWhileOthersCommit},
}

// before returns a state that uses every attribute.
func before(w *world) []engine.Row {
	now := time.Now()
	rows := []engine.Row{
		{Key: "a", Value: "1", Owner: ann, Due: now.Add(-time.Hour).Round(0)},
		{Key: "b", Value: "2", Owner: ann},
		{Key: "c", Value: "3", Due: now.Add(time.Hour).Round(0)},
		{Key: "d", Value: "4"},
	}
	w.put(rows...)
	w.want(rows...)
	return rows
}

// turmoil changes every row of before in some way, most of them twice.
func turmoil(tx engine.Tx) {
	tx.Put(engine.Row{Key: "a", Value: "x", Owner: bob})
	tx.Touch(engine.Row{Key: "a", Value: "y", Owner: ann, Due: tx.Now().Add(time.Second)})
	tx.Delete("b")
	tx.Put(engine.Row{Key: "b", Value: "anew", Owner: bob, Due: tx.Now()})
	tx.Touch(engine.Row{Key: "c", Value: "x", Owner: ann, Due: tx.Now().Add(-time.Second)})
	tx.Delete("c")
	tx.Delete("d")
	tx.Put(row("e", "new"))
	tx.Touch(row("f", "new"))
	tx.Delete("f")
	for r := range tx.Owned(bob, "") {
		tx.Delete(r.Key)
	}
}

func anErrorChangesNothing(w *world) {
	rows := before(w)
	err := w.Update(w.Context(), func(tx engine.Tx) error { turmoil(tx); return errRefused })
	if !errors.Is(err, errRefused) {
		w.Errorf("update: %v", err)
	}
	w.want(rows...)
	w.reopen()
	w.want(rows...)
}

func aPanicChangesNothing(w *world) {
	rows := before(w)
	func() {
		defer func() {
			if r := recover(); r != "at the disco" {
				w.Errorf("recovered %v", r)
			}
		}()
		_ = w.Update(w.Context(), func(tx engine.Tx) error { turmoil(tx); panic("at the disco") })
	}()
	w.want(rows...)
	func() {
		defer func() { _ = recover() }()
		_ = w.View(w.Context(), func(tx engine.Tx) error {
			for range tx.Owned(ann, "") {
				panic("within a walk")
			}
			return nil
		})
	}()
	w.put(row("e", "5")) // nothing is left locked
	w.want(append(rows, row("e", "5"))...)
}

// anExitChangesNothing: a test that fails inside a transaction ends its
// goroutine there.
func anExitChangesNothing(w *world) {
	rows := before(w)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = w.Update(w.Context(), func(tx engine.Tx) error { turmoil(tx); exit(); return nil })
	})
	wg.Wait()
	w.want(rows...)
}

func anErrorIsGivenBack(w *world) {
	if err := w.View(w.Context(), func(engine.Tx) error { return errRefused }); !errors.Is(err, errRefused) {
		w.Errorf("view: %v", err)
	}
	if err := w.Update(w.Context(), func(engine.Tx) error { return errRefused }); !errors.Is(err, errRefused) {
		w.Errorf("update: %v", err)
	}
}

func aTransactionReadsItsOwnWrites(w *world) {
	before(w)
	w.update(func(tx engine.Tx) {
		turmoil(tx)
		compare(w, tx, []engine.Row{
			{Key: "a", Value: "y", Owner: ann, Due: tx.Now().Add(time.Second)},
			row("e", "new"),
		})
		if r, ok := tx.Get("b"); ok {
			w.Errorf("a deleted row is found: %v", r)
		}
	})
}

func updatesAreSerial(w *world) {
	const goroutines, each = 8, 25
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				w.update(func(tx engine.Tx) {
					r, _ := tx.Get("count")
					n, _ := strconv.Atoi(r.Value)
					tx.Put(row("count", strconv.Itoa(n+1)))
				})
			}
		})
	}
	wg.Wait()
	w.want(row("count", strconv.Itoa(goroutines*each)))
}

func aViewSeesWholeTransactions(w *world) {
	w.put(row("a", "0"), row("b", "0"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			w.put(row("a", strconv.Itoa(i)), row("b", strconv.Itoa(i)))
		}
	})
	for range 100 {
		w.view(func(tx engine.Tx) {
			a, _ := tx.Get("a")
			b, _ := tx.Get("b")
			if a.Value != b.Value {
				w.Errorf("a is %s and b is %s", a.Value, b.Value)
			}
		})
	}
	wg.Wait()
}

func aViewCannotWrite(w *world) {
	rows := before(w)
	for name, write := range map[string]func(engine.Tx){
		"put":    func(tx engine.Tx) { tx.Put(row("a", "x")) },
		"touch":  func(tx engine.Tx) { tx.Touch(row("z", "x")) },
		"delete": func(tx engine.Tx) { tx.Delete("a") },
	} {
		err := w.View(w.Context(), func(tx engine.Tx) error { write(tx); return nil })
		if !errors.Is(err, engine.ErrReadOnly) {
			w.Errorf("%s: %v", name, err)
		}
	}
	w.want(rows...)
}

func nowNeverGoesBack(w *world) {
	var last time.Time
	for range 100 {
		w.update(func(tx engine.Tx) {
			now := tx.Now()
			if now.Before(last) {
				w.Errorf("now is %v, and was %v", now, last)
			}
			tx.Put(engine.Row{Key: "k", Due: now})
			if again := tx.Now(); !again.Equal(now) {
				w.Errorf("now is %v, and was %v in the same transaction", again, now)
			}
			last = now
		})
	}
	if d := time.Since(last).Abs(); d > time.Minute {
		w.Errorf("the engine's clock is %v off", d)
	}
}

func anEndedContextStartsNothing(w *world) {
	ctx := cancelled(w, errRefused)
	never := func(engine.Tx) error { w.Error("the function has run"); return nil }
	if err := w.Update(ctx, never); !errors.Is(err, errRefused) {
		w.Errorf("update: %v", err)
	}
	if err := w.View(ctx, never); !errors.Is(err, errRefused) {
		w.Errorf("view: %v", err)
	}
	if err := w.WaitDue(ctx); !errors.Is(err, errRefused) {
		w.Errorf("wait due: %v", err)
	}
}

// exit ends the goroutine like a failing test.
func exit() { runtime.Goexit() }

// aCheckWhileOthersCommit checks between commits in quick succession.
func aCheckWhileOthersCommit(w *world) {
	ctx, stop := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				w.update(func(tx engine.Tx) {
					if i%2 == 0 {
						tx.Put(row("a", numbered(i)))
						tx.Put(row("~a", numbered(i)))
					} else {
						tx.Delete("a")
						tx.Delete("~a")
					}
				})
			}
		})
	}
	for range 50 {
		w.check()
	}
	stop()
	wg.Wait()
}
