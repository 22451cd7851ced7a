package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

func mustUpdateLocally(t *testing.T, e *pebble.Engine, fn func(engine.Tx)) {
	t.Helper()
	if err := e.Update(engine.Local(t.Context()), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// TestTheJournalLosesNothing kills the process at random instants amid commits of
// both kinds, many more than the journal has room for: all that was answered is
// there, and nothing that was deleted comes back.
func TestTheJournalLosesNothing(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	disk := vfs.FS(vfs.NewMem())
	var rows string
	for round := range 12 {
		var said []string
		e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: func(format string, args ...any) {
			said = append(said, fmt.Sprintf(format, args...))
		}})
		if is, err := contentsOf(t, e); err != nil || is != rows || len(said) > 0 {
			t.Fatalf("seed %d, round %d: %v; the rows are as they were: %t; said: %q", seed, round, err, is == rows, said)
		}
		for range r.IntN(1500) {
			key := fmt.Sprintf("hot/%02d", r.IntN(50))
			change := func(tx engine.Tx) {
				if _, there := tx.Get(key); there && r.IntN(2) == 0 {
					tx.Delete(key)
					return
				}
				tx.Put(engine.Row{Key: key, Value: strings.Repeat("x", r.IntN(1000))})
				tx.Put(engine.Row{Key: "~" + key, Value: fmt.Sprint(r.Uint64())})
			}
			switch n := r.IntN(400); {
			case n == 0:
				if err := e.Flush(); err != nil {
					t.Fatal(err)
				}
			case n < 20:
				mustUpdate(t, e, change)
			default:
				mustUpdateLocally(t, e, change)
			}
		}
		var err error
		if rows, err = contentsOf(t, e); err != nil {
			t.Fatal(err)
		}
		killed := filesOf(t, disk)
		mustClose(t, e)
		if r.IntN(4) > 0 {
			disk = killed.disk(t)
		}
	}
}

// TestTheJournalOfALostLogIsNotBelieved: after a power cut the journal may have
// commits that were built on some that the log has lost.
func TestTheJournalOfALostLogIsNotBelieved(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "first"}) })
	before := filesOf(t, disk)
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "second"}) })
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "third"}) })
	after := filesOf(t, disk)
	mustClose(t, e)
	for name, content := range before {
		if strings.HasSuffix(name, ".log") {
			after[name] = content
		}
	}
	if is := open20(t, after); !errors.Is(is.refused, engine.ErrCorrupt) || !strings.Contains(is.refused.Error(), "journal") {
		t.Errorf("opened by a machine that ran on: %v, said %q", is.refused, is.said)
	}
	now := clock.Go()
	now.Boot = "another"
	e = mustOpen(t, pebble.Options{Dir: "state", FS: after.disk(t), Clock: now})
	if rows, err := contentsOf(t, e); err != nil || !strings.Contains(rows, "first") || strings.Contains(rows, "third") {
		t.Errorf("opened by one that started again: %v, rows %s", err, rows)
	}
	mustClose(t, e)
}

// TestTheJournalIsCutOffOnlyAtItsEnd damages each byte of what the journal has in
// turn: commits that were answered are refused to be lost, but for the last one,
// which the daemon may have died writing.
func TestTheJournalIsCutOffOnlyAtItsEnd(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	for i := range 3 {
		mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprint("row", i)}) })
	}
	killed := filesOf(t, disk)
	mustClose(t, e)
	content := killed["journal"]
	refused := 0
	for at := range len(strings.TrimRight(string(content), "\x00")) {
		killed["journal"] = slices.Clone(content)
		killed["journal"][at] ^= 0x55
		switch is := open20(t, killed); {
		case errors.Is(is.refused, engine.ErrCorrupt):
			refused++
		case is.refused != nil || len(is.said) == 0 || !strings.Contains(is.rows, "row1"):
			t.Errorf("byte %d: %v, said %q, rows %s", at, is.refused, is.said, is.rows)
		}
	}
	if refused == 0 {
		t.Error("no damage was refused")
	}
}
