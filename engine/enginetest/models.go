package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/leasehold/leasehold/engine"
)

var models = []test{
	{"AnyHistoryAgreesWithTheModel", anyHistory},
}

// A model is the expected state, kept in the simplest way.
type model struct {
	live   map[string]engine.Row // as a transaction sees it
	stored map[string]engine.Row // as last Put, without those deleted since
}

func (m *model) clone() model {
	return model{maps.Clone(m.live), maps.Clone(m.stored)}
}

func (m *model) rows() []engine.Row {
	return slices.SortedFunc(maps.Values(m.live), byKey)
}

// anyHistory runs random transactions, reopens and crashes. Rapid prints the
// seed of a failing history, and the shortest failing one that it finds.
func anyHistory(w *world) {
	// This hides T.Deadline from rapid, because it has no meaning in a bubble.
	rapid.Check(struct{ testing.TB }{w.T}, func(t *rapid.T) {
		m := model{live: make(map[string]engine.Row), stored: make(map[string]engine.Row)}
		w.update(func(tx engine.Tx) { // each run begins with an empty state
			for r := range everything(tx) {
				tx.Delete(r.Key)
			}
		})
		steps := map[string]func(*rapid.T){
			"":         func(t *rapid.T) { w.agree(t, &m) },
			"update":   func(t *rapid.T) { w.step(t, &m, "commit") },
			"update 2": func(t *rapid.T) { w.step(t, &m, "commit") },
			"refuse":   func(t *rapid.T) { w.step(t, &m, "error") },
			"panic":    func(t *rapid.T) { w.step(t, &m, "panic") },
			"reopen":   func(t *rapid.T) { w.reopen(); w.adopt(t, &m) },
		}
		if w.canCrash() {
			steps["crash"] = func(t *rapid.T) { w.crash(); w.adopt(t, &m) }
		}
		t.Repeat(steps)
		if w.Failed() {
			t.FailNow() // an invariant of the engine is violated
		}
	})
}

// agree compares the engine with the model in every way.
func (w *world) agree(t *rapid.T, m *model) {
	if err := w.View(w.Context(), func(tx engine.Tx) error {
		compare(t, tx, m.rows())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, key := range append(slices.Collect(maps.Keys(m.live)), "~", "none") {
		got, ok, err := w.Get(w.Context(), key)
		if want, there := m.live[key]; err != nil || ok != there || !same(got, want) {
			t.Errorf("get %q outside:\n got %v, %t, %v\nwant %v, %t", key, got, ok, err, want, there)
		}
	}
	w.agreeRead(t, m)
	w.check()
}

// agreeRead reads the cold rows.
func (w *world) agreeRead(t *rapid.T, m *model) {
	keys := []string{"~", "~none"}
	for key := range m.live {
		if strings.HasPrefix(key, engine.Cold) {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if got, _, err := w.Get(engine.Peek(w.Context()), key); err != nil || !same(got, m.live[key]) {
			t.Errorf("read %q:\n got %v, %v\nwant %v", key, got, err, m.live[key])
		}
	}
}

// adopt updates the model with the touches that were lost. It checks that each
// row is either unchanged or as it was last Put.
func (w *world) adopt(t *rapid.T, m *model) {
	live := make(map[string]engine.Row)
	if err := w.View(w.Context(), func(tx engine.Tx) error {
		for r := range everything(tx) {
			live[r.Key] = r
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for key, r := range live {
		was, touched := m.live[key]
		put, stored := m.stored[key]
		if !(touched && same(r, was)) && !(stored && same(r, put)) {
			t.Fatalf("%v has come back; it was %v, %t and stored %v, %t", r, was, touched, put, stored)
		}
	}
	for key := range m.stored {
		if _, ok := live[key]; !ok {
			t.Fatalf("%q was stored and is lost", key)
		}
	}
	m.live = live
}

var (
	someKey   = rapid.SampledFrom([]string{"a", "a/", "a/1", "a/2", "a\xff", "b", "b/\x00", "c", "~", "~a", "~a/1", "~a\xff", "~b", "~\xff", "\x7f"})
	someValue = rapid.StringN(0, 4, -1)
	someOwner = rapid.SampledFrom([]uuid.UUID{uuid.Nil, uuid.Nil, ann, bob})
	someDue   = rapid.SampledFrom([]time.Duration{0, 0, -2 * time.Hour, -time.Hour, -time.Hour + 1, time.Hour})
)

// step runs one transaction on both the engine and the model, and ends it in
// the given way.
func (w *world) step(t *rapid.T, m *model, end string) {
	after := m.clone()
	var failed any
	err := func() (err error) {
		defer func() {
			// Rapid ends a run by a panic, which must be passed on.
			if failed = recover(); failed != nil && failed != errRefused {
				panic(failed)
			}
		}()
		return w.Update(w.Context(), func(tx engine.Tx) error {
			for range rapid.IntRange(0, 6).Draw(t, "operations") {
				operate(t, tx, &after)
			}
			switch end {
			case "error":
				return errRefused
			case "panic":
				panic(errRefused)
			}
			return nil
		})
	}()
	switch {
	case end == "commit" && err != nil, end == "error" && !errors.Is(err, errRefused), end == "panic" && failed == nil:
		t.Fatalf("%s: %v, %v", end, err, failed)
	case end == "commit":
		*m = after
	}
}

// operate performs one operation on both.
func operate(t *rapid.T, tx engine.Tx, m *model) {
	switch op := rapid.SampledFrom([]string{"put", "touch", "delete", "compare", "walk", "end owner", "see to due"}).Draw(t, "operation"); op {
	case "put", "touch":
		r := engine.Row{Key: someKey.Draw(t, "key"), Value: someValue.Draw(t, "value"), Owner: someOwner.Draw(t, "owner")}
		if d := someDue.Draw(t, "due"); d != 0 {
			r.Due = tx.Now().Add(d)
		}
		if isCold(r) {
			r.Owner, r.Due = uuid.Nil, time.Time{}
		}
		m.live[r.Key] = r
		if op == "put" || isCold(r) {
			m.stored[r.Key] = r
		}
		if op == "put" {
			tx.Put(r)
		} else {
			tx.Touch(r)
		}
	case "delete":
		m.delete(tx, someKey.Draw(t, "key"))
	case "compare":
		compare(t, tx, m.rows())
	case "walk": // and delete the rows found, or the first remaining one
		prefix := rapid.SampledFrom([]string{"", "a", "~", "~a"}).Draw(t, "prefix")
		for r := range tx.ScanFrom(prefix, someKey.Draw(t, "from")) {
			if !same(r, m.live[r.Key]) {
				t.Errorf("%v is met, and there is %v", r, m.live[r.Key])
			}
			if rapid.Bool().Draw(t, "itself") {
				m.delete(tx, r.Key)
			} else {
				m.delete(tx, someKey.Draw(t, "key"))
			}
		}
	case "end owner":
		owner := someOwner.Draw(t, "owner")
		for r := range tx.Owned(owner, "") {
			if r.Owner != owner {
				t.Errorf("%v is not %v's", r, owner)
			}
			m.delete(tx, r.Key)
		}
	case "see to due":
		for r := range tx.Due() {
			if later := r; len(r.Key)%2 == 0 {
				later.Due = tx.Now().Add(time.Hour)
				m.live[r.Key] = later
				tx.Touch(later)
			} else {
				m.delete(tx, r.Key)
			}
		}
	default:
		panic(fmt.Sprintf("no operation %q", op))
	}
}

func (m *model) delete(tx engine.Tx, key string) {
	delete(m.live, key)
	delete(m.stored, key)
	tx.Delete(key)
}
