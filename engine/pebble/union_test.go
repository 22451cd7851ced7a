package pebble_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
)

// The states of several partitions are copied into one, which has the greatest of their
// marks and the earliest of their clocks.
func TestTheStatesOfSeveralPartitionsBecomeOne(t *testing.T) {
	ctx := context.Background()
	at := func(wall time.Time) clock.Clock {
		return clock.Clock{Running: func() time.Duration { return time.Hour }, Wall: func() time.Time { return wall }, Sleeps: true}
	}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	state := func(wall time.Time, rows ...engine.Row) memory.Store {
		o := pebble.Options{Dir: "state", FS: vfs.NewMem(), Clock: at(wall)}
		eng, err := pebble.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		err = eng.Update(ctx, func(tx engine.Tx) error {
			for _, row := range rows {
				tx.Put(row)
			}
			return nil
		})
		if err := errors.Join(err, eng.Close()); err != nil {
			t.Fatal(err)
		}
		s, err := pebble.OpenStore(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	put := func(keys ...string) (rows []engine.Row) {
		for _, key := range keys {
			name, value, _ := strings.Cut(key, "=")
			rows = append(rows, engine.Row{Key: name, Value: value})
		}
		return rows
	}
	from := memory.Union{
		state(noon, put("run/b=1", "format=1", engine.Mark+"n=00000017", engine.Cold+"y=2")...),
		state(noon.Add(-time.Minute), put("run/a=3", "run/c=4", "format=1", engine.Mark+"n=00000042", engine.Cold+"x=5")...),
		state(noon.Add(time.Minute), put("format=1", engine.Mark+"n=00000009")...),
	}
	to := pebble.Options{Dir: "to", FS: vfs.NewMem(), Clock: at(noon)}
	target, err := pebble.OpenStore(to)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := memory.Copy(ctx, from, target, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	again, err := memory.SumOf(ctx, from, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	there, err := memory.SumOf(ctx, target, func(int64) {})
	if err != nil || sum != there || sum != again || sum.Cold != 2 {
		t.Errorf("copied %+v, there are %+v, read again %+v: %v", sum, there, again, err)
	}
	var runs []string
	if err := memory.Names(target, "run/", func(run string) { runs = append(runs, run) }); err != nil || strings.Join(runs, " ") != "a b c" {
		t.Errorf("runs %v, %v", runs, err)
	}
	if spread, err := memory.WasSpread(target); err != nil || !spread {
		t.Errorf("it is not known that it was spread: %v", err)
	}
	if err := errors.Join(memory.Complete(target), target.Close(), from.Close()); err != nil {
		t.Fatal(err)
	}
	eng, err := pebble.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	err = eng.View(ctx, func(tx engine.Tx) error {
		if mark, _ := tx.Get(engine.Mark + "n"); mark.Value != "00000042" {
			t.Errorf("the mark is %q", mark.Value)
		}
		if now := tx.Now(); now.After(noon) {
			t.Errorf("the clock is at %v: it has the time of another partition", now)
		}
		return nil
	})
	if err := errors.Join(err, eng.Close()); err != nil {
		t.Fatal(err)
	}

	two := memory.Union{state(noon, put("run/a=1")...), state(noon, put("run/a=2")...)}
	if _, err := memory.SumOf(ctx, two, func(int64) {}); !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("a row that is in two partitions: %v", err)
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}
}
