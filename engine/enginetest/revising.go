package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold/engine"
)

var revising = []test{
	{"ReviseChangesThePrefixAsATouchDoes", reviseChangesThePrefix},
	{"ReviseMovesManyDueRows", reviseMovesManyDueRows},
	{"AnErrorOfReviseChangesNothing", anErrorOfRevise},
	{"ReviseWakesWhoeverWaits", reviseWakes},
}

// revise runs a Revise that is to succeed.
func (w *world) revise(prefix string, fn func(r *engine.Row)) {
	w.Helper()
	err := w.Revise(w.Context(), prefix, func(_ time.Time, r engine.Row) (engine.Row, error) { fn(&r); return r, nil })
	if err != nil {
		w.Fatalf("revise: %v", err)
	}
}

func reviseChangesThePrefix(w *world) {
	due := time.Now().Add(time.Hour)
	rows := []engine.Row{
		{Key: "a", Value: "a", Owner: ann, Due: due},
		{Key: "b/1", Value: "1", Owner: ann, Due: due},
		{Key: "b/2", Value: "2", Owner: bob},
		{Key: "b/3", Due: due},
		{Key: "c", Owner: bob, Due: due},
	}
	w.put(rows...)
	stored := slices.Clone(rows)
	change := func(r *engine.Row) {
		switch r.Key {
		case "b/1":
			r.Value, r.Due = "another", due.Add(-2*time.Hour)
		case "b/2":
			r.Owner, r.Due = ann, due.Add(-3*time.Hour)
		case "b/3":
			r.Due = time.Time{}
		default:
			w.Errorf("row %q is asked about", r.Key)
		}
	}
	w.revise("b/", change)
	for i := range rows {
		if strings.HasPrefix(rows[i].Key, "b/") {
			change(&rows[i])
		}
	}
	w.want(rows...)
	w.revise("none", change)
	w.want(rows...)
	// What is revised may be changed as ever.
	w.update(func(tx engine.Tx) { tx.Delete("b/2"); tx.Touch(row("b/3", "touched")) })
	w.want(rows[0], rows[1], row("b/3", "touched"), rows[4])
	w.put(stored...)
	if w.canCrash() {
		w.revise("b/", change)
		w.crash()
		w.view(func(tx engine.Tx) {
			for _, was := range stored {
				if r, ok := tx.Get(was.Key); !ok || r.Key != was.Key {
					w.Errorf("row %q is gone", was.Key)
				}
			}
		})
	}
}

func reviseMovesManyDueRows(w *world) {
	const n = 10_000
	w.update(func(tx engine.Tx) {
		for i := range n {
			tx.Put(engine.Row{Key: fmt.Sprintf("k%05d", i), Due: tx.Now().Add(-time.Hour + time.Duration(i))})
		}
	})
	w.reopen()
	var asked atomic.Int64
	w.revise("k", func(r *engine.Row) {
		asked.Add(1)
		if r.Key < "k05000" {
			r.Due = time.Unix(0, 2*n-r.Due.UnixNano()%n) // in the other order
		} else {
			r.Due = r.Due.Add(2 * time.Hour)
		}
	})
	if asked.Load() != n {
		w.Errorf("%d rows are asked about", asked.Load())
	}
	w.view(func(tx engine.Tx) {
		var last engine.Row
		seen := 0
		for r := range tx.Due() {
			if r.Due.Before(last.Due) || r.Due.Equal(last.Due) && r.Key < last.Key {
				w.Fatalf("row %q is due after row %q", r.Key, last.Key)
			}
			last = r
			seen++
		}
		if seen != n/2 {
			w.Errorf("%d rows are due", seen)
		}
	})
}

func anErrorOfRevise(w *world) {
	rows := []engine.Row{{Key: "a", Value: "1", Owner: ann}, {Key: "b", Value: "2", Due: time.Now().Add(time.Hour)}, {Key: "c", Value: "3"}}
	w.put(rows...)
	for name, fn := range map[string]func(r *engine.Row) error{
		"an error":    func(*engine.Row) error { return errRefused },
		"another key": func(r *engine.Row) error { r.Key = "d"; return nil },
		"too large":   func(r *engine.Row) error { r.Value = strings.Repeat("x", engine.MaxValue+1); return nil },
	} {
		err := w.Revise(w.Context(), "", func(_ time.Time, r engine.Row) (engine.Row, error) {
			if r.Key == "b" {
				return r, fn(&r)
			}
			return engine.Row{Key: r.Key, Value: "changed", Owner: bob}, nil
		})
		if err == nil || name == "an error" && !errors.Is(err, errRefused) || name == "too large" && !errors.Is(err, engine.ErrTooLarge) {
			w.Errorf("%s: %v", name, err)
		}
		w.want(rows...)
	}
	if err := w.Revise(cancelled(w, errRefused), "", nil); !errors.Is(err, errRefused) {
		w.Errorf("with an ended context: %v", err)
	}
}

func reviseWakes(w *world) {
	w.dueIn("a", time.Hour)
	watch := w.Watch("a")
	defer watch.Stop()
	done := make(chan error, 1)
	go func() { done <- w.WaitDue(context.WithoutCancel(w.Context())) }()
	w.quiet()
	var due time.Time
	w.revise("a", func(r *engine.Row) {
		due = time.Now().Add(soon)
		r.Due = due
	})
	w.waited(<-done, due)
	<-watch.C
}
