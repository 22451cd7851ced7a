package enginetest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var durability = []test{
	{"WhatWasPutSurvivesAReopen", whatWasPutSurvivesAReopen},
	{"WhatWasAnsweredSurvivesACrash", whatWasAnsweredSurvivesACrash},
	{"ATouchNeverReplacesWhatWasPut", aTouchNeverReplacesAPut},
	{"AcknowledgedTransactionsAreWholeAfterACrash", acknowledgedAreWhole},
	{"WhoeverSeesAnUpdateThatDidNotWaitMayRelyOnIt", seenWithoutWaiting},
	{"AnUpdateThatDidNotWaitBecomesDurable", notWaitedFor},
}

// script is a sequence of Updates that exercises the life of rows.
var script = []func(tx engine.Tx){
	func(tx engine.Tx) { tx.Put(row("a", "1")) },
	func(tx engine.Tx) { tx.Put(engine.Row{Key: "a", Value: "2", Owner: ann}) },
	func(tx engine.Tx) { tx.Put(row("b", "1")); tx.Put(row("b", "2")); tx.Put(row("c", "1")) },
	func(tx engine.Tx) { tx.Delete("a") },
	func(tx engine.Tx) { tx.Delete("b"); tx.Put(row("b", "3")) },
	func(tx engine.Tx) { tx.Put(row("d", "1")); tx.Delete("d") },
	func(tx engine.Tx) { tx.Put(row("b", "4")); tx.Delete("b"); tx.Delete("c") },
	func(tx engine.Tx) { tx.Put(engine.Row{Key: "a", Due: time.Unix(1e9, 1), Owner: bob}) },
	func(tx engine.Tx) {},
	func(tx engine.Tx) { tx.Delete("a"); tx.Put(row("z", "")) },
	func(tx engine.Tx) { tx.Put(row("~a", "1")); tx.Put(row("a", "1")) },
	func(tx engine.Tx) { tx.Put(row("~a", "2")); tx.Put(row("~a", "3")); tx.Touch(row("~b", "1")) },
	func(tx engine.Tx) { tx.Delete("~a"); tx.Put(row("~c", "1")); tx.Delete("~c") },
	func(tx engine.Tx) { tx.Delete("~b"); tx.Put(row("~b", "2")); tx.Delete("a") },
	func(tx engine.Tx) { tx.Delete("~missing") },
}

// contents returns every row. It waits for no disk.
func contents(w *world) (rows []engine.Row) {
	w.Helper()
	if err := w.View(engine.Local(w.Context()), func(tx engine.Tx) error {
		rows = slices.SortedFunc(everything(tx), byKey)
		return nil
	}); err != nil {
		w.Fatalf("view: %v", err)
	}
	return rows
}

func whatWasPutSurvivesAReopen(w *world) {
	for _, step := range script {
		w.update(step)
		want := contents(w)
		w.reopen()
		w.want(want...)
	}
}

func whatWasAnsweredSurvivesACrash(w *world) {
	if !w.canCrash() {
		w.Skip("the harness cannot crash")
	}
	for _, step := range script {
		w.update(step)
		want := contents(w)
		w.crash()
		w.want(want...)
	}
}

// noWait runs an Update that does not wait, and after which a watch of "k"
// wakes.
func noWait(w *world, value string) {
	w.Helper()
	w.update(func(tx engine.Tx) {
		tx.Put(row("k", value))
		tx.Put(row("~k", value))
		tx.NoWait()
	})
}

func seenWithoutWaiting(w *world) {
	whatIsSeenSurvives(w, func(value string) { noWait(w, value) })
}

// whatIsSeenSurvives checks that what write has put into "k" and "~k" survives a
// power cut as soon as a caller that is not local has looked at the state, in
// whatever way.
func whatIsSeenSurvives(w *world, write func(value string)) {
	w.Helper()
	if !w.canCrash() {
		w.Skip("the harness cannot crash")
	}
	look := func(engine.Tx) error { return nil }
	for name, see := range map[string]func() error{
		"view":     func() error { return w.View(w.Context(), look) },
		"update":   func() error { return w.Update(w.Context(), look) },
		"refused":  func() error { _ = w.Update(w.Context(), func(engine.Tx) error { return errRefused }); return nil },
		"put":      func() error { w.put(row("other", "")); return nil },
		"snapshot": func() error { return w.Snapshot(w.Context(), look) },
		"get":      func() error { _, _, err := w.Get(w.Context(), "k"); return err },
		"get cold": func() error { _, _, err := w.Get(w.Context(), "~k"); return err },
	} {
		write(name)
		if err := see(); err != nil {
			w.Errorf("%s: %v", name, err)
		}
		w.crash()
		for _, key := range []string{"k", "~k"} {
			if got, ok, err := w.Get(w.Context(), key); err != nil || !ok || got.Value != name {
				w.Errorf("%s: after a power cut %q is %v (%t, %v)", name, key, got, ok, err)
			}
		}
	}
}

// notWaitedFor: once the watches of an Update wake, it is durable, as always;
// and they do wake, though nothing else happens.
func notWaitedFor(w *world) {
	watch := w.Watch("k")
	noWait(w, "1")
	<-watch.C
	watch.Stop()
	if w.canCrash() {
		w.crash()
	}
	w.want(row("k", "1"), row("~k", "1"))
	noWait(w, "2")
	w.reopen()
	w.want(row("k", "2"), row("~k", "2"))
}

func aTouchNeverReplacesAPut(w *world) {
	restarts := []func(){w.reopen}
	if w.canCrash() {
		restarts = append(restarts, w.crash)
	}
	for _, restart := range restarts {
		w.update(func(tx engine.Tx) {
			tx.Put(engine.Row{Key: "both", Value: "put", Owner: ann})
			tx.Touch(engine.Row{Key: "both", Value: "touched", Owner: bob, Due: tx.Now()})
			tx.Put(row("put", "put"))
			tx.Touch(row("touched", "touched"))
			tx.Touch(row("touched, then put", "touched"))
			tx.Put(row("touched, then put", "put"))
			tx.Touch(row("gone", "touched"))
		})
		w.update(func(tx engine.Tx) {
			tx.Touch(row("put", "touched"))
			tx.Delete("gone")
		})
		live := contents(w)
		restart()
		got := make(map[string]engine.Row)
		for _, r := range contents(w) {
			got[r.Key] = r
		}
		for _, r := range live { // unchanged, or as it was put, or gone if it was never put
			put := row(r.Key, "put")
			if r.Key == "both" {
				put.Owner = ann
			}
			after, ok := got[r.Key]
			switch {
			case ok && (same(after, r) || r.Key != "touched" && same(after, put)):
			case !ok && r.Key == "touched":
			default:
				w.Errorf("%v has come back as %v, %t", r, after, ok)
			}
			delete(got, r.Key)
		}
		if len(got) != 0 {
			w.Errorf("rows out of nowhere: %v", got)
		}
		w.update(func(tx engine.Tx) {
			for r := range tx.Scan("") {
				tx.Delete(r.Key)
			}
		})
	}
}

// acknowledgedAreWhole crashes during concurrent Updates of pairs of a hot and
// a cold row, and during reads of these pairs. Whatever one of them returned
// before the crash is there afterwards, and no pair is torn.
func acknowledgedAreWhole(w *world) {
	if !w.canCrash() {
		w.Skip("the harness cannot crash")
	}
	const goroutines, each = 8, 20
	for range 5 {
		var mu sync.Mutex
		told := make([]int, goroutines)
		tell := func(g, n int) {
			mu.Lock()
			defer mu.Unlock()
			told[g] = max(told[g], n)
		}
		half := make(chan struct{}, goroutines)
		var wg sync.WaitGroup
		for g := range goroutines {
			a, b := fmt.Sprintf("a%d", g), fmt.Sprintf("~b%d", g)
			wg.Go(func() {
				for i := range each {
					var n int
					w.update(func(tx engine.Tx) {
						r, _ := tx.Get(a)
						n, _ = strconv.Atoi(r.Value)
						n++
						tx.Put(row(a, strconv.Itoa(n)))
						tx.Put(row(b, strconv.Itoa(n)))
					})
					tell(g, n)
					if i == each/2 {
						half <- struct{}{}
					}
				}
			})
			wg.Go(func() {
				for i := range each {
					r, _, err := w.Get(w.Context(), []string{a, b}[i%2])
					if err != nil {
						w.Errorf("get: %v", err)
					}
					n, _ := strconv.Atoi(r.Value)
					tell(g, n)
				}
			})
			wg.Go(func() {
				for range each {
					var n int
					w.view(func(tx engine.Tx) {
						r, _ := tx.Get(a)
						n, _ = strconv.Atoi(r.Value)
					})
					tell(g, n)
				}
			})
		}
		<-half
		mu.Lock()
		w.state.Crash()
		want := append([]int(nil), told...)
		mu.Unlock()
		wg.Wait()
		w.reopen()
		w.view(func(tx engine.Tx) {
			for g, want := range want {
				a, _ := tx.Get(fmt.Sprintf("a%d", g))
				b, _ := tx.Get(fmt.Sprintf("~b%d", g))
				if n, _ := strconv.Atoi(a.Value); a.Value != b.Value || n < want {
					w.Errorf("after a crash a%d is %q and ~b%d is %q; %d was answered", g, a.Value, g, b.Value, want)
				}
			}
		})
	}
}
