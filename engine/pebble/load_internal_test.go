package pebble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// TestAStateMayBeReadInAnyParts loads rows of few and of many owners that were
// cut anywhere, between rows and where there are none, and has Check compare what
// becomes of it with the store.
func TestAStateMayBeReadInAnyParts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	e, err := Open(Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	update := func(fn func(tx engine.Tx)) {
		if err := e.Update(context.Background(), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	owners := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New(), uuid.New()}
	const rows = 5000
	update(func(tx engine.Tx) {
		for i := range rows {
			r := engine.Row{Key: fmt.Sprintf("k%05d", rnd.IntN(100_000)), Value: fmt.Sprint(i), Owner: owners[rnd.IntN(4)]}
			if rnd.IntN(4) == 0 {
				r.Owner = uuid.New()
			}
			if rnd.IntN(2) == 0 {
				r.Due = tx.Now().Add(time.Duration(rnd.IntN(10)-2) * time.Second)
			}
			tx.Put(r)
		}
		tx.Put(engine.Row{Key: "~cold", Value: "not of these"})
	})
	for _, parts := range []int{0, 1, 2, 7, 300} {
		var cuts [][]byte
		for range parts {
			cuts = append(cuts, append([]byte{rowSpace}, fmt.Sprintf("k%05d", rnd.IntN(110_000))...))
		}
		slices.SortFunc(cuts, slices.Compare)
		e.mu.Lock()
		e.mem = newMemory()
		err := e.load(cuts, rnd.IntN(2*rows))
		e.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Check(); err != nil {
			t.Fatalf("%d parts: %v", parts, err)
		}
		update(func(tx engine.Tx) { // what was loaded changes like any other
			for r := range tx.Owned(owners[1+rnd.IntN(3)]) {
				tx.Delete(r.Key)
			}
			for i := range 500 {
				tx.Put(engine.Row{Key: fmt.Sprintf("k%05d", rnd.IntN(110_000)), Value: fmt.Sprint(i), Owner: owners[rnd.IntN(4)]})
			}
		})
	}
}

// TestALargeStateIsReadInParts has rows in many tables, and cold ones beside them
// and in the log.
func TestALargeStateIsReadInParts(t *testing.T) {
	fs := vfs.NewMem()
	open := func() *Engine {
		e, err := Open(Options{Dir: "state", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	seed := [32]byte([]byte("any that gives the same each time"))
	noise := rand.NewChaCha8(seed)
	value := make([]byte, 4000)
	owners := []uuid.UUID{uuid.New(), uuid.New()}
	for i := range 50 {
		err := e.Update(t.Context(), func(tx engine.Tx) error {
			for j := range 200 {
				_, _ = noise.Read(value)
				n := uint32(200*i+j) * 0x9e3779b9
				tx.Put(engine.Row{Key: fmt.Sprintf("k%08x", n), Value: string(value), Owner: owners[j%2], Due: tx.Now().Add(time.Hour)})
				tx.Put(engine.Row{Key: fmt.Sprintf("~%08x", n), Value: string(value[:100])})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open()
		if cuts, err := e.cuts(8); err != nil || len(cuts) < 3 {
			t.Errorf("%d cuts, %v", len(cuts), err)
		}
		if err := e.Check(); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}
