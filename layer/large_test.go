package layer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// A watched engine counts the cold rows that are read under its lock, and the
// updates.
type watched struct {
	engine.Engine
	cold, updates int
}

type watchedTx struct {
	engine.Tx
	cold *int
}

func (w *watched) View(ctx context.Context, fn func(engine.Tx) error) error {
	return w.Engine.View(ctx, func(tx engine.Tx) error { return fn(watchedTx{tx, &w.cold}) })
}

func (w *watched) Update(ctx context.Context, fn func(engine.Tx) error) error {
	w.updates++
	return w.Engine.Update(ctx, func(tx engine.Tx) error { return fn(watchedTx{tx, &w.cold}) })
}

func (tx watchedTx) Get(key string) (engine.Row, bool) {
	if strings.HasPrefix(key, engine.Cold) {
		*tx.cold++
	}
	return tx.Tx.Get(key)
}

// A large value is checked before the transaction that writes it, and read from
// disk by none that others wait for.
func TestALargeValueHoldsUpNobody(t *testing.T) {
	inner, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	eng := &watched{Engine: inner}
	store := kvstore.New(eng, registry.New(eng, registry.Options{}).Registry("layer:S1"), uuid.New(), kvstore.Limits{})
	view := layer.New(eng, store, layer.Options{Name: func(engine.Tx, uuid.UUID) (string, bool) { return "", false }}).As(s1)

	var bad *registry.ArgumentError
	_, err = view.Set(t.Context(), layer.Write{Path: "/shared/x", Value: []byte(`[1`)})
	if !errors.As(err, &bad) || bad.Argument != "value" || eng.updates != 0 {
		t.Errorf("a value that is no JSON: %v, after %d updates", err, eng.updates)
	}
	large := fmt.Sprintf("%q", strings.Repeat("x", 1<<19))
	if _, err := view.Set(t.Context(), layer.Write{Path: "/shared/x", Value: []byte(" " + large)}); err != nil {
		t.Fatal(err)
	}
	eng.cold = 0
	for what, get := range map[string]func() (*kvstore.Entry, error){
		"get":  func() (*kvstore.Entry, error) { return view.Get(t.Context(), "/shared/x") },
		"wait": func() (*kvstore.Entry, error) { e, _, err := view.Wait(t.Context(), "/shared/x", 0, 0); return e, err },
	} {
		e, err := get()
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Value) != large || eng.cold != 0 {
			t.Errorf("%s: %d bytes, with %d cold rows read under the lock", what, len(e.Value), eng.cold)
		}
	}
}
