package enginetest

import (
	"slices"
	"strconv"
	"sync"

	"github.com/leasehold/leasehold/engine"
)

var watches = []test{
	{"AChangeWakesItsWatchers", aChangeWakesItsWatchers},
	{"ManyWhoChangeTheSameAreAllTold", manyWhoChangeTheSame},
	{"NothingElseWakesAWatcher", nothingElseWakesAWatcher},
	{"NoChangeIsLostBetweenWatchAndLook", noChangeIsLost},
	{"WatchersEndCleanly", watchersEndCleanly},
	{"WhatComesAfterACommitComesBeforeItsWatches", afterACommit},
}

func aChangeWakesItsWatchers(w *world) {
	one, other, every := w.Watch("k"), w.Watch("k"), w.Watch("")
	defer one.Stop()
	defer other.Stop()
	defer every.Stop()
	for _, change := range []func(tx engine.Tx){
		func(tx engine.Tx) { tx.Put(row("k", "1")) },
		func(tx engine.Tx) { tx.Touch(row("k", "2")) },
		func(tx engine.Tx) { tx.Delete("k") },
		func(tx engine.Tx) { tx.Touch(row("k", "3")) },
		func(tx engine.Tx) { tx.Delete("k") },
		func(tx engine.Tx) { tx.Put(row("j", "")); tx.Put(row("k", "")); tx.Put(row("l", "")) },
	} {
		w.update(change)
		<-one.C
		<-other.C
		<-every.C
	}
}

// manyWhoChangeTheSame: each caller's own change wakes its watch before its
// Update returns, even if others change the same rows at the same time and the
// engine combines their commits.
func manyWhoChangeTheSame(w *world) {
	keys := []string{"a", "b", "~a/1", "~a/2", "~b/1", "~b/2"}
	var wg sync.WaitGroup
	for n := range 16 {
		wg.Go(func() {
			for round := range 50 {
				mine := []string{keys[(n+round)%len(keys)], keys[(3*n+5*round+1)%len(keys)]}
				var watches []*engine.Watch
				for _, key := range mine {
					watches = append(watches, w.Watch(key))
				}
				err := w.Update(w.Context(), func(tx engine.Tx) error {
					for _, key := range mine {
						tx.Put(row(key, strconv.Itoa(n)))
					}
					return nil
				})
				if err != nil {
					w.Error(err)
				}
				for i, watch := range watches {
					select {
					case <-watch.C:
					default:
						w.Errorf("nobody was told of %q", mine[i])
					}
					watch.Stop()
				}
			}
		})
	}
	wg.Wait()
}

func nothingElseWakesAWatcher(w *world) {
	if !w.quiet() {
		w.Skip("not in a bubble: a wake-up too many could still be on its way")
	}
	w.put(row("k", "1"))
	watch := w.Watch("k")
	defer watch.Stop()
	w.put(row("j", ""), row("kk", ""), row("l", ""))
	w.update(func(tx engine.Tx) { tx.Delete("missing"); tx.Delete("kk") })
	w.view(func(tx engine.Tx) { tx.Get("k") })
	_ = w.Update(w.Context(), func(tx engine.Tx) error { tx.Put(row("k", "2")); return errRefused })
	w.quiet()
	select {
	case <-watch.C:
		w.Error("woken, and k has not changed")
	default:
	}
	for range 3 { // a burst is reported at least once, and not again
		w.put(row("k", "3"))
	}
	w.quiet()
	<-watch.C
	select {
	case <-watch.C:
		w.Error("woken again, and k has not changed since")
	default:
	}
}

// noChangeIsLost makes many goroutines watch and read a row in turn, each until
// it has seen the last change.
func noChangeIsLost(w *world) {
	const changes, watchers = 100, 8
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			key := "k"
			if i == 0 {
				key = ""
			}
			for {
				watch := w.Watch(key)
				var n int
				w.view(func(tx engine.Tx) {
					r, _ := tx.Get("k")
					n, _ = strconv.Atoi(r.Value)
				})
				if n < changes {
					<-watch.C
				}
				watch.Stop()
				if n == changes {
					return
				}
			}
		})
	}
	for i := range changes {
		w.put(row("k", strconv.Itoa(i+1)))
	}
	wg.Wait()
}

func afterACommit(w *world) {
	watch := w.Watch("k")
	defer watch.Stop()
	var calls []string // the engine calls before it wakes the watch
	for _, wait := range []bool{true, false} {
		w.update(func(tx engine.Tx) {
			tx.AfterCommit(func() { calls = append(calls, "one") })
			tx.AfterCommit(func() { calls = append(calls, "two") })
			tx.Touch(row("k", ""))
			if !wait {
				tx.NoWait()
			}
		})
		<-watch.C
	}
	if want := []string{"one", "two", "one", "two"}; !slices.Equal(calls, want) {
		w.Errorf("called %q, want %q", calls, want)
	}
	for _, fn := range []func(tx engine.Tx) error{
		func(tx engine.Tx) error { tx.Put(row("k", "")); return errRefused },
		func(tx engine.Tx) error { tx.Put(engine.Row{}); return nil },
		func(tx engine.Tx) error { return nil },
	} {
		_ = w.Update(w.Context(), func(tx engine.Tx) error {
			tx.AfterCommit(func() { w.Error("called after a transaction that changed nothing") })
			return fn(tx)
		})
	}
}

func watchersEndCleanly(w *world) {
	watches := []*engine.Watch{w.Watch("a"), w.Watch("a"), w.Watch("a"), w.Watch("b")}
	watches[1].Stop()
	watches[1].Stop() // stopping twice does no harm
	w.put(row("a", ""))
	<-watches[0].C
	<-watches[2].C
	if w.quiet() {
		select {
		case <-watches[1].C:
			w.Error("a stopped watch was woken")
		default:
		}
	}
	watches[2].Stop()
	watches[0].Stop()
	w.put(row("a", ""), row("b", ""))
	<-watches[3].C
	watches[3].Stop()
}
