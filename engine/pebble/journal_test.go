package pebble_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

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
					if r.IntN(2) == 0 {
						tx.Delete("~" + key)
					}
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

// TestWhatIsSoonDeletedStaysInTheJournal: a lease that comes and goes costs Pebble
// nothing, survives a kill in between, and is not back when its group is appended.
func TestWhatIsSoonDeletedStaysInTheJournal(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "old", Value: "1"}) })
	logged := e.Metrics().WAL.BytesIn
	for i := range 100 {
		mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "lease", Value: fmt.Sprint(i)}) })
		if i == 50 {
			if is := open20(t, filesOf(t, disk)); is.refused != nil || !strings.Contains(is.rows, `"lease" "50"`) {
				t.Errorf("killed while it is held: %v, rows %s", is.refused, is.rows)
			}
		}
		mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Delete("lease") })
	}
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "old", Value: "2"}) })
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Delete("old") })
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "old", Value: "3"}) })
	if is := e.Metrics().WAL.BytesIn; is != logged {
		t.Errorf("Pebble was given %d bytes", is-logged)
	}
	if is := open20(t, filesOf(t, disk)); is.refused != nil || strings.Contains(is.rows, "lease") || !strings.Contains(is.rows, `"old" "3"`) {
		t.Errorf("killed: %v, rows %s", is.refused, is.rows)
	}
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("old") }) // appends the group
	if is := e.Metrics().WAL.BytesIn - logged; is > 1000 {
		t.Errorf("Pebble was given %d bytes, for a row that was written twice and deleted twice", is)
	}
	mustClose(t, e)
	e = mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	if rows, err := contentsOf(t, e); err != nil || rows != "" {
		t.Errorf("opened again: %v, rows %s", err, rows)
	}
	mustClose(t, e)
}

// A beforeEachWrite is called before each write to a file system.
type beforeEachWrite func()

func (beforeEachWrite) String() string { return "before each write" }

func (look beforeEachWrite) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpCreate, errorfs.OpRename, errorfs.OpRemove:
		look()
	}
	return nil
}

// TestAStartCanBeKilledAnywhere kills a daemon, and then the next one before each
// write of its start: the third one has all that the first one acknowledged.
func TestAStartCanBeKilledAnywhere(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "~cold"}) })
	for i := range 80 {
		mustUpdateLocally(t, e, func(tx engine.Tx) {
			tx.Put(engine.Row{Key: "count", Value: fmt.Sprint(i)})
			tx.Put(engine.Row{Key: fmt.Sprint("held/", i), Value: strings.Repeat("x", 3000)})
			tx.Delete(fmt.Sprint("held/", i-3))
		})
		if i%25 == 20 { // appends what came before, and waits for no disk
			mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Delete("~cold") })
		}
	}
	rows, err := contentsOf(t, e)
	if err != nil {
		t.Fatal(err)
	}
	disk = filesOf(t, disk).disk(t).(*vfs.MemFS)
	mustClose(t, e)

	var mu sync.Mutex
	var killed []files
	e = mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, beforeEachWrite(func() {
		mu.Lock()
		defer mu.Unlock()
		killed = append(killed, someFilesOf(t, disk))
	}))})
	mu.Lock()
	starts := killed
	mu.Unlock()
	mustClose(t, e)
	for n, f := range starts {
		if is := open20(t, f); is.refused != nil || is.rows != rows {
			t.Errorf("killed before write %d of %d: %v, the rows are as they were: %t, said %q", n, len(starts), is.refused, is.rows == rows, is.said)
		}
	}
}
