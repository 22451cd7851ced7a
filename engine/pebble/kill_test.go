package pebble_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

const killedEnv = "LEASEHOLD_TEST_KILLED_STATE"

// TestKill9LosesNothing kills a process amid local commits, again and again, and
// finds everything that it said was done.
func TestKill9LosesNothing(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		commitForEver(t, dir)
	}
	dir := t.TempDir()
	told := -1
	for round := range 5 {
		child := exec.Command(os.Args[0], "-test.run", "^TestKill9LosesNothing$")
		child.Env = append(os.Environ(), killedEnv+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if told, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
			if n == 200+round*100 {
				_ = child.Process.Kill() // what it says until then is read as well
			}
		}
		_ = child.Wait()
		e := mustOpen(t, pebble.Options{Dir: dir, Logf: t.Logf})
		mustUpdate(t, e, func(tx engine.Tx) {
			for i := range told + 1 {
				_, hot := tx.Get(fmt.Sprintf("k%d", i))
				_, cold := tx.Get(fmt.Sprintf("~k%d", i))
				_, next := tx.Get(fmt.Sprintf("k%d", i+1))
				if !hot || cold != (i%2 == 0 || !next) {
					t.Fatalf("round %d: of %d commits that were answered, %d is lost (hot: %t, cold: %t)", round, told+1, i, hot, cold)
				}
			}
		})
		mustClose(t, e)
	}
}

func commitForEver(t *testing.T, dir string) {
	e := mustOpen(t, pebble.Options{Dir: dir})
	first := 0
	mustUpdate(t, e, func(tx engine.Tx) {
		for range tx.Scan("k") {
			first++
		}
	})
	for i := first; ; i++ {
		mustUpdateLocally(t, e, func(tx engine.Tx) {
			tx.Put(engine.Row{Key: fmt.Sprintf("k%d", i)})
			tx.Put(engine.Row{Key: fmt.Sprintf("~k%d", i)})
			if i%2 == 0 {
				tx.Delete(fmt.Sprintf("~k%d", i-1)) // as a claim does
			}
		})
		fmt.Println(i)
	}
}

// TestAMappedJournalMayFail: the system answers a store into a page that it
// cannot provide with a fault, as here where the file has become too short. Then
// commits wait for the log instead.
func TestAMappedJournalMayFail(t *testing.T) {
	t.Chdir(t.TempDir())
	e := mustOpen(t, pebble.Options{Dir: "state"})
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "before"}) })
	if err := os.Truncate("state/journal", 0); err != nil {
		t.Fatal(err)
	}
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "after"}) })
	if is := open20(t, filesOf(t, vfs.Default)); is.refused != nil || !strings.Contains(is.rows, "before") || !strings.Contains(is.rows, "after") {
		t.Errorf("killed: %v, rows %s", is.refused, is.rows)
	}
	mustClose(t, e)
}

// TestALocalCommitDoesNotWaitForTheDisk, and neither does a local reader of it;
// a commit that is not local, and a reader from another machine, do.
func TestALocalCommitDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{shut: make(chan struct{})}
		e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(vfs.NewMem(), g)})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "first"}) })
		g.on.Store(true)
		local := engine.Local(t.Context())
		put := func(tx engine.Tx) error { tx.Put(engine.Row{Key: "k"}); tx.Put(engine.Row{Key: "~k"}); return nil }
		look := func(engine.Tx) error { return nil }
		for _, do := range []func() error{
			func() error { return e.Update(local, put) },
			func() error { return e.View(local, look) },
			func() error { return e.Snapshot(local, look) },
			func() error { _, _, err := e.Get(local, "~k"); return err },
		} {
			if err := do(); err != nil { // and is not held back
				t.Error(err)
			}
		}
		var answered atomic.Int64
		for _, do := range []func() error{
			func() error { return e.View(t.Context(), look) },
			func() error { return e.Update(local, func(tx engine.Tx) error { tx.Sync(); return put(tx) }) },
			func() error { return e.Update(t.Context(), put) },
		} {
			go func() {
				if err := do(); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}()
		}
		synctest.Wait()
		if n := answered.Load(); n != 0 {
			t.Errorf("%d were answered before the disk was", n)
		}
		close(g.shut)
		synctest.Wait()
		if n := answered.Load(); n != 3 {
			t.Errorf("%d of 3 were answered", n)
		}
		mustClose(t, e)
	})
}
