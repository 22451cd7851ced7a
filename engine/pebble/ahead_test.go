package pebble_test

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A gate holds back every sync of a log while it is shut.
type gate struct {
	shut chan struct{} // closed to open it
	on   atomic.Bool
	err  error // what the syncs held back then answer
}

func (g *gate) String() string { return "gate" }

func (g *gate) MaybeError(op errorfs.Op) error {
	if !g.on.Load() || op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData {
		return nil
	}
	if ok, _ := path.Match("*.log", path.Base(op.Path)); !ok {
		return nil
	}
	<-g.shut
	return g.err
}

// TestNobodyIsToldOfWhatIsNotDurable holds back the sync of an Update. Others
// run meanwhile, for the lock is free, and see what it did; but none of them
// answers, and no watch is woken, before the sync is done.
func TestNobodyIsToldOfWhatIsNotDurable(t *testing.T) {
	for name, fault := range map[string]error{"SyncSucceeds": nil, "SyncFails": errDisk} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { aheadOfTheDisk(t, fault) })
		})
	}
}

func aheadOfTheDisk(t *testing.T, fault error) {
	g := &gate{shut: make(chan struct{}), err: fault}
	e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(vfs.NewMem(), g)})
	defer e.Close()
	g.on.Store(true)

	watch := e.Watch("k")
	defer watch.Stop()
	answers := make(chan error, 10)
	start := func(do func(ctx context.Context, fn func(engine.Tx) error) error, fn func(tx engine.Tx) error) {
		go func() { answers <- do(t.Context(), fn) }()
		synctest.Wait()
	}
	refused := errors.New("refused by the test")
	var sees atomic.Int64
	see := func(tx engine.Tx) {
		_, hot := tx.Get("k")
		_, cold := tx.Get("~k")
		for range tx.Scan("~") {
			if hot && cold {
				sees.Add(1)
			}
		}
	}
	get := func(key string) {
		go func() {
			if _, ok, err := e.Get(t.Context(), key); !ok && err == nil {
				t.Errorf("%q is not there", key)
			} else {
				answers <- err
			}
		}()
		synctest.Wait()
	}
	start(e.Update, func(tx engine.Tx) error { tx.Put(engine.Row{Key: "k"}); tx.Put(engine.Row{Key: "~k"}); return nil })
	get("~k")
	start(e.View, func(tx engine.Tx) error { see(tx); return nil })
	start(e.View, func(tx engine.Tx) error { see(tx); return refused })
	start(e.Update, func(tx engine.Tx) error { see(tx); return refused })
	start(e.Update, func(tx engine.Tx) error { see(tx); return nil })
	start(e.Update, func(tx engine.Tx) error { see(tx); tx.Touch(engine.Row{Key: "t"}); return nil })
	start(e.Update, func(tx engine.Tx) error { see(tx); tx.Put(engine.Row{Key: "l"}); return nil })
	start(func(ctx context.Context, fn func(engine.Tx) error) (err error) {
		defer func() { _ = recover() }()
		return e.Update(ctx, fn)
	}, func(tx engine.Tx) error { see(tx); panic(refused) })
	get("k")
	get("~k") // no longer from the overlay: it is in the store, and not on the disk
	if n := sees.Load(); n != 7 {
		t.Errorf("%d of 7 have run while the sync was held back", n)
	}
	select {
	case err := <-answers:
		t.Fatalf("an answer before the sync: %v", err)
	case <-watch.C:
		t.Fatal("a watch was woken before the sync")
	default:
	}
	close(g.shut)
	synctest.Wait()
	<-watch.C
	nils, refusals, failures := 0, 0, 0
	for range 11 {
		switch err := <-answers; {
		case err == nil:
			nils++
		case errors.Is(err, refused):
			refusals++
		case errors.Is(err, engine.ErrFailed):
			failures++
		default:
			t.Errorf("answer: %v", err)
		}
	}
	// One of the nils is of the Update that panics.
	if fault == nil && (nils != 9 || refusals != 2) || fault != nil && (failures < 10 || nils > 1) {
		t.Errorf("%d were done, %d refused and %d failed", nils, refusals, failures)
	}
}
