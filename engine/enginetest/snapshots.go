package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var snapshots = []test{
	{"ASnapshotIsOfOneInstantAndHoldsUpNobody", aSnapshotHoldsUpNobody},
	{"ASnapshotWritesNothing", aSnapshotWritesNothing},
	{"CloseWaitsForASnapshot", closeWaitsForASnapshot},
	{"SnapshotsSeeWholeTransactions", snapshotsSeeWholeTransactions},
}

// aSnapshotHoldsUpNobody changes everything while a snapshot is read.
func aSnapshotHoldsUpNobody(w *world) {
	var want []engine.Row
	w.update(func(tx engine.Tx) {
		for i := range many {
			want = append(want, engine.Row{Key: numbered(i), Value: "old", Owner: ann, Due: tx.Now().Add(time.Hour)}, row(coldNumbered(i), "old"))
		}
		for _, r := range want {
			tx.Put(r)
		}
	})
	slices.SortFunc(want, byKey)
	begun, changed := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(changed)
		<-begun
		for i := range many {
			w.update(func(tx engine.Tx) {
				if i%2 == 0 {
					tx.Delete(numbered(i))
					tx.Delete(coldNumbered(i))
				} else {
					tx.Put(engine.Row{Key: numbered(i), Value: "new", Owner: bob})
					tx.Put(row(coldNumbered(i), "new"))
				}
				tx.Put(row(numbered(i)+"+", "new"))
				tx.Put(row(coldNumbered(i)+"+", "new"))
			})
		}
	})
	err := w.Snapshot(w.Context(), func(tx engine.Tx) error {
		close(begun)
		compare(w, tx, want)
		<-changed
		compare(w, tx, want)
		return nil
	})
	if err != nil {
		w.Errorf("snapshot: %v", err)
	}
	wg.Wait()
	w.view(func(tx engine.Tx) {
		if n := len(slices.Collect(everything(tx))); n != 3*many {
			w.Errorf("%d rows after", n)
		}
	})
	w.check()
}

func aSnapshotWritesNothing(w *world) {
	w.put(row("a", "1"), row("~a", "1"))
	for name, write := range map[string]func(engine.Tx){
		"put":         func(tx engine.Tx) { tx.Put(row("a", "2")) },
		"touch":       func(tx engine.Tx) { tx.Touch(row("a", "2")) },
		"delete":      func(tx engine.Tx) { tx.Delete("a") },
		"put cold":    func(tx engine.Tx) { tx.Put(row("~a", "2")) },
		"delete cold": func(tx engine.Tx) { tx.Delete("~a") },
	} {
		err := w.Snapshot(w.Context(), func(tx engine.Tx) error { write(tx); return nil })
		if !errors.Is(err, engine.ErrReadOnly) {
			w.Errorf("%s: %v", name, err)
		}
	}
	if err := w.Snapshot(w.Context(), func(engine.Tx) error { return errRefused }); !errors.Is(err, errRefused) {
		w.Errorf("an error: %v", err)
	}
	if err := w.Snapshot(cancelled(w, errRefused), nil); !errors.Is(err, errRefused) {
		w.Errorf("an ended context: %v", err)
	}
	w.want(row("a", "1"), row("~a", "1"))
}

func closeWaitsForASnapshot(w *world) {
	w.put(row("a", "1"), row("~a", "1"))
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- w.Snapshot(context.WithoutCancel(w.Context()), func(tx engine.Tx) error {
			close(begun)
			if n := len(slices.Collect(everything(tx))); n != 2 {
				w.Errorf("%d rows", n)
			}
			return nil
		})
	}()
	<-begun
	if err := w.Close(); err != nil {
		w.Errorf("close: %v", err)
	}
	if err := <-ended; err != nil {
		w.Errorf("snapshot: %v", err)
	}
}

// snapshotsSeeWholeTransactions counts in a hot and a cold row, while snapshots
// and transactions compare the two.
func snapshotsSeeWholeTransactions(w *world) {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				w.update(func(tx engine.Tx) {
					r, _ := tx.Get("a")
					n, _ := strconv.Atoi(r.Value)
					tx.Put(row("a", strconv.Itoa(n+1)))
					tx.Put(row("~a", strconv.Itoa(n+1)))
					tx.Put(row(fmt.Sprintf("~b%04d", n+1), ""))
				})
			}
		})
		wg.Go(func() {
			for range 50 {
				err := w.Snapshot(w.Context(), func(tx engine.Tx) error {
					a, _ := tx.Get("a")
					b, _ := tx.Get("~a")
					n, _ := strconv.Atoi(a.Value)
					if got := len(slices.Collect(tx.Scan("~b"))); a.Value != b.Value || got != n {
						w.Errorf("a snapshot of %q, %q and %d rows", a.Value, b.Value, got)
					}
					return nil
				})
				if err != nil {
					w.Errorf("snapshot: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
