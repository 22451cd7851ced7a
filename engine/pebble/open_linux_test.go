package pebble_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A breakingWith is a breaking disk with the cause.
type breakingWith struct {
	breaking
	cause error
}

func (b *breakingWith) MaybeError(op errorfs.Op) error {
	if b.breaking.MaybeError(op) == nil {
		return nil
	}
	return &os.PathError{Op: "write", Path: op.Path, Err: b.cause}
}

// TestAStartThatFailsAnywhereEndsWithTheCause opens a copy of a state whose daemon
// was killed, on a disk that fails at each operation in turn. Once the disk works
// again nothing is missing, and it is noted that this is a copy.
func TestAStartThatFailsAnywhereEndsWithTheCause(t *testing.T) {
	t.Parallel()
	original := t.TempDir()
	e := mustOpen(t, pebble.Options{Dir: original})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: engine.Mark + "token", Value: "1"}) })
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "~cold", Value: "1"}) })
	mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "local", Value: "1"}) })
	killed := t.TempDir()
	if err := os.CopyFS(killed, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	for _, disk := range []*breakingWith{{cause: syscall.EIO}, {cause: syscall.ENOSPC}} {
		disk.pattern, disk.once = "*", disk.cause == syscall.EIO
		t.Run(disk.cause.Error(), func(t *testing.T) {
			t.Parallel() // they wait for the real disk
			for disk.n = 1; ; {
				t.Run(fmt.Sprint(disk.n), func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "state")
					if err := os.CopyFS(dir, os.DirFS(killed)); err != nil {
						t.Fatal(err)
					}
					openBroken(t, dir, disk)
					e := mustOpen(t, pebble.Options{Dir: dir})
					defer mustClose(t, e)
					mustUpdate(t, e, func(tx engine.Tx) {
						for _, key := range []string{engine.Mark + "token", "~cold", "local", engine.CopyKey} {
							if _, ok := tx.Get(key); !ok {
								t.Errorf("%q is missing", key)
							}
						}
					})
				})
				if !disk.broken.Swap(false) {
					t.Logf("all before operation %d", disk.n)
					break
				}
				disk.count.Store(0)
				if disk.once && !raceEnabled {
					disk.n++
				} else {
					disk.n = nextToBreak(disk.n)
				}
			}
		})
	}
}

// A state whose first start failed anywhere is no other program's.
func TestAFirstStartThatFailsAnywhereLeavesAState(t *testing.T) {
	t.Parallel()
	for _, disk := range []*breakingWith{{cause: syscall.EIO}, {cause: syscall.ENOSPC}} {
		disk.pattern, disk.once = "*", disk.cause == syscall.EIO
		for disk.n = 1; ; disk.n = nextToBreak(disk.n) {
			dir := filepath.Join(t.TempDir(), "state")
			openBroken(t, dir, disk)
			e, err := pebble.Open(pebble.Options{Dir: dir})
			if err != nil {
				t.Fatalf("after the failure of operation %d: %v", disk.n, err)
			}
			mustClose(t, e)
			if !disk.broken.Swap(false) {
				break
			}
			disk.count.Store(0)
		}
	}
}

func openBroken(t *testing.T, dir string, disk *breakingWith) {
	ended := make(chan error, 1)
	go func() {
		e, err := pebble.Open(pebble.Options{Dir: dir, FS: errorfs.Wrap(vfs.Default, disk), Clock: clock.Machine()})
		if err == nil {
			_ = e.Close()
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, disk.cause) {
			t.Errorf("open: %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("Open does not return")
	}
}
