package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

var errDisk = errors.New("the disk has failed, says the test")

// breaking fails the n-th operation that changes a file matching pattern, and
// every one after it unless once.
type breaking struct {
	pattern string
	n       int64
	once    bool
	count   atomic.Int64
	broken  atomic.Bool
}

func (b *breaking) String() string { return b.pattern }

func (b *breaking) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
		return nil
	}
	if ok, _ := path.Match(b.pattern, path.Base(op.Path)); !ok {
		return nil
	}
	n := b.count.Add(1)
	if n < b.n || b.once && n > b.n {
		return nil
	}
	b.broken.Store(true)
	return errDisk
}

// TestAFailedCommitIsFinal breaks the disk at every operation in turn, among
// concurrent Updates: from the first failure on the engine refuses everything,
// nobody is left waiting, and what was answered is there when it is reopened.
func TestAFailedCommitIsFinal(t *testing.T) {
	for _, pattern := range []string{"*.log", "*.sst", "MANIFEST*", "*"} {
		for _, once := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/once=%t", strings.ReplaceAll(pattern, "*", "_"), once), func(t *testing.T) {
				t.Parallel()
				for n := int64(1); ; n = nextToBreak(n) {
					b := &breaking{pattern: pattern, n: n, once: once}
					if breakAt(t, b); !b.broken.Load() {
						t.Logf("survives when operation %d and later would fail", n)
						return
					}
				}
			})
		}
	}
}

// nextToBreak leaves operations out, and more of them where each takes long.
func nextToBreak(n int64) int64 {
	if raceEnabled {
		return n*6 + 1
	}
	return n*3/2 + 1
}

func breakAt(t *testing.T, b *breaking) {
	disk := vfs.NewCrashableMem()
	e, err := pebble.Open(pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, b)})
	if err != nil {
		if !errors.Is(err, errDisk) {
			t.Errorf("operation %d of %s: open: %v", b.n, b.pattern, err)
		}
		return
	}
	watch := e.Watch("nothing")
	defer watch.Stop()
	due := make(chan error, 1)
	go func() { due <- e.WaitDue(context.Background()) }()
	answered := work(t, e)
	failed := b.broken.Load()
	if err := e.Update(t.Context(), func(tx engine.Tx) error { tx.Put(engine.Row{Key: "last"}); return nil }); err == nil {
		failed = false // what broke was of no consequence
	} else if !errors.Is(err, engine.ErrFailed) || !errors.Is(err, errDisk) && b.pattern == "*.log" {
		t.Errorf("operation %d of %s: update: %v", b.n, b.pattern, err)
	}
	if failed {
		refusesEverything(t, e)
		<-watch.C
		if err := <-due; !errors.Is(err, engine.ErrFailed) {
			t.Errorf("wait due: %v", err)
		}
	}
	err = e.Close()
	if failed && err == nil {
		t.Errorf("operation %d of %s: close of a failed engine tells of nothing", b.n, b.pattern)
	}
	if !failed {
		<-due
	}

	e, err = pebble.Open(pebble.Options{Dir: "state", FS: disk})
	if err != nil {
		t.Fatalf("operation %d of %s: reopen: %v", b.n, b.pattern, err)
	}
	defer e.Close()
	if err := e.View(t.Context(), func(tx engine.Tx) error {
		for _, key := range answered {
			if _, ok := tx.Get(key); !ok {
				t.Errorf("operation %d of %s: %q was answered and is lost", b.n, b.pattern, key)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := e.Check(); err != nil {
		t.Error(err)
	}
}

// work puts rows of some size, every other one cold, enough to fill logs and memtables, until that
// fails, and gives the keys of those that were answered.
func work(t *testing.T, e *pebble.Engine) []string {
	value := strings.Repeat("v", 64<<10)
	var mu sync.Mutex
	var answered []string
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 60 {
				key := []string{"", engine.Cold}[i%2] + fmt.Sprintf("%d/%d", g, i)
				err := e.Update(t.Context(), func(tx engine.Tx) error {
					tx.Put(engine.Row{Key: key, Value: value})
					return nil
				})
				if err != nil {
					if !errors.Is(err, engine.ErrFailed) {
						t.Errorf("update: %v", err)
					}
					return
				}
				mu.Lock()
				answered = append(answered, key)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return answered
}

func refusesEverything(t *testing.T, e *pebble.Engine) {
	nothing := func(engine.Tx) error { t.Error("the function has run"); return nil }
	_, _, get := e.Get(t.Context(), "hot")
	_, _, getCold := e.Get(t.Context(), "~cold")
	for name, err := range map[string]error{
		"get":      get,
		"get cold": getCold,
		"update":   e.Update(t.Context(), nothing),
		"view":     e.View(t.Context(), nothing),
		"wait due": e.WaitDue(t.Context()),
		"check":    e.Check(),
	} {
		if !errors.Is(err, engine.ErrFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
