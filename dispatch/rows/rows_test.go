package rows_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

type thing struct{ Name string }

// TestACorruptRecordFailsWhateverReadIt: the transaction changes nothing and
// names the record, even though the rule that read it took it for missing.
func TestACorruptRecordFailsWhateverReadIt(t *testing.T) {
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	err = rows.Update(t.Context(), eng, func(tx engine.Tx) error {
		rows.Put(tx, "thing/good", thing{"good"}, uuid.Nil)
		tx.Put(engine.Row{Key: "thing/spoilt", Value: "{"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	named := func(err error) bool {
		return errors.Is(err, engine.ErrCorrupt) && strings.Contains(err.Error(), `"thing/spoilt"`)
	}
	read := func(tx engine.Tx) error {
		if v, ok := rows.Get[thing](tx, "thing/good"); !ok || v.Name != "good" {
			t.Errorf("the good one is %+v, %v", v, ok)
		}
		if _, ok := rows.Get[thing](tx, "thing/none"); ok {
			t.Error("there is one that was never put")
		}
		if v, ok := rows.Get[thing](tx, "thing/spoilt"); ok || v != (thing{}) {
			t.Errorf("the spoilt one is %+v, %v", v, ok)
		}
		return nil
	}
	for name, in := range map[string]func(context.Context, engine.Engine, func(engine.Tx) error) error{
		"View": rows.View, "Snapshot": rows.Snapshot,
		"Update": func(ctx context.Context, eng engine.Engine, fn func(engine.Tx) error) error {
			return rows.Update(ctx, eng, func(tx engine.Tx) error {
				rows.Put(tx, "thing/new", thing{"new"}, uuid.Nil)
				return fn(tx)
			})
		},
	} {
		if err := in(t.Context(), eng, read); !named(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err = rows.View(t.Context(), eng, func(tx engine.Tx) error {
		if _, ok := tx.Get("thing/new"); ok {
			t.Error("an update that met a corrupt record has written")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	err = eng.View(t.Context(), func(tx engine.Tx) error { return rows.Check[thing](tx, "thing/") })
	if !named(err) {
		t.Errorf("Check: %v", err)
	}
}
