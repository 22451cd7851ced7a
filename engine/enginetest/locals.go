package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var locals = []test{
	{"ATransactionSeesTheOneBefore", aTransactionSeesTheOneBefore},
	{"ALocalCommitSurvivesTheProcess", aLocalCommitSurvivesTheProcess},
	{"CloseTakesALocalCommitToTheDisk", closeTakesALocalCommit},
	{"APowerCutLosesASuffixOfLocalCommits", aPowerCutLosesASuffix},
	{"WhatAnotherMachineSawSurvivesAPowerCut", whatAnotherMachineSaw},
	{"SyncMakesALocalCommitSurviveTheMachine", syncMakesALocalCommitSurvive},
}

// updateAs runs fn in an Update of a local or another caller.
func (w *world) updateAs(local bool, fn func(tx engine.Tx)) {
	w.Helper()
	ctx := w.Context()
	if local {
		ctx = engine.Local(ctx)
	}
	if err := w.Update(ctx, func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		w.Fatalf("update: %v", err)
	}
}

// aTransactionSeesTheOneBefore, also while that one is on its way to the store,
// whoever waits for the disk.
func aTransactionSeesTheOneBefore(w *world) {
	model := make(map[string]string) // guarded by the engine, which runs one transaction at a time
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
			for i := range 100 {
				w.updateAs(r.IntN(3) > 0, func(tx engine.Tx) {
					for n := range 6 {
						for _, key := range []string{fmt.Sprint("k", n), coldNumbered(n)} {
							want, there := model[key]
							if is, ok := tx.Get(key); ok != there || is.Value != want {
								w.Errorf("%q is %q (%t), want %q (%t)", key, is.Value, ok, want, there)
							}
							switch r.IntN(8) {
							case 0:
								tx.Delete(key)
								delete(model, key)
							case 1:
								model[key] = fmt.Sprint(g, " ", i)
								tx.Put(row(key, model[key]))
							}
						}
					}
				})
			}
		})
	}
	wg.Wait()
	kept := func(tx engine.Tx) {
		for n := range 6 {
			for _, key := range []string{fmt.Sprint("k", n), coldNumbered(n)} {
				if is, ok := tx.Get(key); is.Value != model[key] || ok != (model[key] != "") {
					w.Errorf("%q is %q after a restart, want %q", key, is.Value, model[key])
				}
			}
		}
	}
	if w.state.Kill != nil {
		w.kill()
		w.view(kept)
	}
}

func aLocalCommitSurvivesTheProcess(w *world) {
	if w.state.Kill == nil {
		w.Skip("the harness cannot kill")
	}
	for _, step := range script {
		w.updateAs(true, step)
		want := contents(w)
		w.kill()
		w.want(want...)
	}
	for i := range 50 {
		w.updateAs(i%3 != 0, func(tx engine.Tx) {
			tx.Put(row(fmt.Sprintf("~k%02d", i), ""))
			tx.Put(row(fmt.Sprintf("k%02d", i), ""))
		})
		if i%10 == 9 {
			want := contents(w)
			w.kill()
			w.want(want...)
		}
	}
}

// closeTakesALocalCommit to the disk, for which nobody else has waited.
func closeTakesALocalCommit(w *world) {
	var want []engine.Row
	for i := range 3 {
		for _, r := range []engine.Row{row(numbered(i), "1"), row(coldNumbered(i), "2")} {
			want = append(want, r)
			w.updateAs(true, func(tx engine.Tx) { tx.Put(r) })
			w.check()
			if err := w.Close(); err != nil {
				w.Fatalf("close: %v", err)
			}
			if w.canCrash() {
				w.state.Crash()
			}
			w.open()
		}
	}
	slices.SortFunc(want, byKey)
	w.want(want...)
}

// aPowerCutLosesASuffix numbers its commits. After a power cut the commits up
// to some number are there completely, and none after that. None is missing
// that was made for, or before, a caller that is not local.
func aPowerCutLosesASuffix(w *world) {
	if !w.canCrash() {
		w.Skip("the harness cannot crash")
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	lost := 0
	for range 20 {
		w.update(func(tx engine.Tx) {
			for row := range everything(tx) {
				tx.Delete(row.Key)
			}
		})
		must, n := -1, r.IntN(60)
		for i := range n {
			local := r.IntN(8) != 0
			if !local {
				must = i
			}
			w.updateAs(local, func(tx engine.Tx) {
				value := strings.Repeat("x", r.IntN(3000))
				tx.Put(row(fmt.Sprintf("k%02d", i), value))
				tx.Put(row(fmt.Sprintf("~k%02d", i), value))
				tx.Put(row("last", strconv.Itoa(i)))
			})
			time.Sleep(time.Duration(r.IntN(2)) * time.Millisecond)
		}
		w.crash()
		w.view(func(tx engine.Tx) {
			last := -1
			if r, ok := tx.Get("last"); ok {
				last, _ = strconv.Atoi(r.Value)
			}
			if last < must {
				w.Errorf("commit %d is lost, and %d is there (seed %d)", must, last, seed)
			}
			for i := range n {
				hot, a := tx.Get(fmt.Sprintf("k%02d", i))
				cold, b := tx.Get(fmt.Sprintf("~k%02d", i))
				if a != (i <= last) || b != (i <= last) || hot.Value != cold.Value {
					w.Errorf("of %d commits, the last of which is %d, commit %d is there: %t, %t (seed %d)", n, last, i, a, b, seed)
				}
			}
			lost += n - 1 - last
		})
	}
	w.Logf("%d local commits were lost", lost)
}

func whatAnotherMachineSaw(w *world) {
	whatIsSeenSurvives(w, func(value string) {
		w.updateAs(true, func(tx engine.Tx) { tx.Put(row("k", value)); tx.Put(row("~k", value)) })
	})
}

func syncMakesALocalCommitSurvive(w *world) {
	if !w.canCrash() {
		w.Skip("the harness cannot crash")
	}
	w.updateAs(true, func(tx engine.Tx) { tx.Put(row("a", "")) })
	w.updateAs(true, func(tx engine.Tx) { tx.Put(row("b", "")); tx.Sync() })
	w.crash()
	w.want(row("a", ""), row("b", ""))
}
