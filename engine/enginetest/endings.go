package enginetest

import (
	"errors"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var endings = []test{
	{"AClosedEngineRefusesEveryUse", aClosedEngineRefuses},
	{"CloseWakesWhoeverWaits", closeWakesWhoeverWaits},
	{"CloseLetsUpdatesFinish", closeLetsUpdatesFinish},
}

func aClosedEngineRefuses(w *world) {
	if err := w.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	nothing := func(engine.Tx) error { w.Error("the function has run"); return nil }
	for name, err := range map[string]error{
		"update":   w.Update(w.Context(), nothing),
		"view":     w.View(w.Context(), nothing),
		"wait due": w.WaitDue(w.Context()),
		"snapshot": w.Snapshot(w.Context(), func(engine.Tx) error { return nil }),
		"close":    w.Close(),
	} {
		if !errors.Is(err, engine.ErrClosed) {
			w.Errorf("%s: %v", name, err)
		}
	}
	w.Watch("k").Stop()
}

func closeWakesWhoeverWaits(w *world) {
	w.dueIn("a", time.Hour)
	watch, every := w.Watch("k"), w.Watch("")
	defer watch.Stop()
	defer every.Stop()
	done := make(chan error, 1)
	go func() { done <- w.WaitDue(w.Context()) }()
	w.quiet()
	if err := w.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	<-watch.C
	<-every.C
	if err := <-done; !errors.Is(err, engine.ErrClosed) {
		w.Errorf("wait due: %v", err)
	}
}

// closeLetsUpdatesFinish closes the engine during Updates. An Update that
// returned nil is there afterwards, and one that returned ErrClosed is not.
func closeLetsUpdatesFinish(w *world) {
	const goroutines = 16
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			errs[i] = w.Update(w.Context(), func(tx engine.Tx) error { tx.Put(row(numbered(i), "")); return nil })
		})
	}
	if err := w.Close(); err != nil {
		w.Fatalf("close: %v", err)
	}
	wg.Wait()
	w.open()
	w.view(func(tx engine.Tx) {
		for i, err := range errs {
			_, ok := tx.Get(numbered(i))
			if ok != (err == nil) || err != nil && !errors.Is(err, engine.ErrClosed) {
				w.Errorf("update %d: %v, and its row is there: %t", i, err, ok)
			}
		}
	})
}
