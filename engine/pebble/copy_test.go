package pebble_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A copy has the same rows and clock, and nobody can open one that is not complete.
func TestACopyIsOpenedOnceItIsComplete(t *testing.T) {
	ctx := context.Background()
	from := pebble.Options{Dir: "from", FS: vfs.NewMem()}
	to := pebble.Options{Dir: "to", FS: vfs.NewMem()}
	eng, err := pebble.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	row := engine.Row{Key: "hot", Value: "1", Owner: uuid.New(), Due: time.Unix(1, 2).UTC()}
	if err := eng.Update(ctx, func(tx engine.Tx) error {
		tx.Put(row)
		tx.Put(engine.Row{Key: engine.Cold + "cold", Value: "2"})
		tx.Put(engine.Row{Key: engine.Mark + "last", Value: "3"})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := eng.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(o pebble.Options) memory.Store {
		s, err := pebble.OpenStore(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	closeIt := func(s memory.Store) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	source, target := open(from), open(to)
	sum, err := memory.Copy(ctx, source, target, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	closeIt(target)
	if _, err := pebble.Open(to); !errors.Is(err, memory.ErrIncomplete) {
		t.Errorf("an incomplete copy opens: %v", err)
	}
	target = open(to)
	if again, err := memory.SumOf(ctx, target, func(int64) {}); err != nil || again != sum || sum.Hot != 2 || sum.Cold != 1 {
		t.Errorf("the copy has %+v, the original %+v: %v", again, sum, err)
	}
	if _, err := memory.Copy(ctx, source, target, func(int64) {}); !errors.Is(err, memory.ErrIncomplete) {
		t.Errorf("an incomplete copy is copied to: %v", err)
	}
	if err := memory.Complete(target); err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Copy(ctx, source, target, func(int64) {}); !errors.Is(err, memory.ErrNotEmpty) {
		t.Errorf("it is copied to twice: %v", err)
	}
	closeIt(target)
	closeIt(source)
	if eng, err = pebble.Open(to); err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	if err := eng.View(ctx, func(tx engine.Tx) error {
		if got, _ := tx.Get("hot"); got != row {
			t.Errorf("the copy has %+v, want %+v", got, row)
		}
		if tx.Now().Before(row.Due) {
			t.Errorf("its clock begins anew at %v", tx.Now())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
