package pebble_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A slowDisk syncs no log while it is held.
type slowDisk struct {
	mu   sync.Mutex
	held chan struct{} // closed when it goes on; nil: it is not held
}

func (*slowDisk) String() string { return "slow" }

func (d *slowDisk) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		d.mu.Lock()
		held := d.held
		d.mu.Unlock()
		if held != nil && strings.HasSuffix(op.Path, ".log") {
			<-held
		}
	}
	return nil
}

func (d *slowDisk) hold() (goOn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := make(chan struct{})
	d.held = held
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held = nil
		close(held)
	}
}

// A disk that stops answering holds up those who wait for it, and nobody else. The
// operator is told when it stops and when it goes on. Nobody is answered too early.
func TestADiskThatStopsHoldsUpOnlyThoseWhoWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var log []string
		said := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(log, "\n")
		}
		files, disk := vfs.NewCrashableMem(), new(slowDisk)
		e, err := pebble.Open(pebble.Options{Dir: "state", FS: errorfs.Wrap(files, disk), Logf: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			log = append(log, fmt.Sprintf(format, args...))
		}})
		if err != nil {
			t.Fatal(err)
		}
		put := func(ctx context.Context, key string) error {
			return e.Update(ctx, func(tx engine.Tx) error { tx.Put(engine.Row{Key: key}); return nil })
		}
		has := func(e *pebble.Engine, key string) (ok bool) {
			err := e.View(engine.Local(t.Context()), func(tx engine.Tx) error { _, ok = tx.Get(key); return nil })
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		if err := put(t.Context(), "before"); err != nil {
			t.Fatal(err)
		}
		goOn := disk.hold()
		stored := make(chan error, 1)
		go func() { stored <- put(t.Context(), "stored") }()
		synctest.Wait()
		start := time.Now()
		if err := put(engine.Local(t.Context()), "local"); err != nil {
			t.Fatal(err)
		}
		if !has(e, "before") || !has(e, "local") {
			t.Error("what was written is not read")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a session on this machine waited for %v", took)
		}
		if err := e.View(engine.Peek(t.Context()), func(engine.Tx) error { return nil }); err != nil || time.Since(start) != 0 {
			t.Errorf("a look that tells nobody anything waited for %v: %v", time.Since(start), err)
		}
		if err := e.Update(t.Context(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: "later"})
			tx.NoWait()
			return nil
		}); err != nil || time.Since(start) != 0 {
			t.Errorf("an update that need not waited for %v: %v", time.Since(start), err)
		}
		time.Sleep(time.Minute)
		if len(stored) > 0 {
			t.Error("an update was answered that the disk does not have")
		}
		if n := strings.Count(said(), "the disk has stored nothing for 5s"); n != 1 {
			t.Errorf("the operator was told %d times: %s", n, said())
		}
		left := files.CrashClone(vfs.CrashCloneCfg{}) // the power fails meanwhile
		goOn()
		if err := <-stored; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !strings.Contains(said(), "the disk stores again") {
			t.Errorf("the operator was told: %s", said())
		}
		after := files.CrashClone(vfs.CrashCloneCfg{})
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range []struct {
			disk *vfs.MemFS
			keys []string
		}{{left, []string{"before"}}, {after, []string{"before", "stored"}}} {
			e, err := pebble.Open(pebble.Options{Dir: "state", FS: c.disk})
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range c.keys {
				if !has(e, key) {
					t.Errorf("%s was answered and is lost", key)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
