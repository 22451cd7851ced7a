package pebble_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// TestARecordThatMayBeReadLaterIsNotDoneWithout: a rule may drop what is damaged, also by a
// bad sector. It must not drop what a disk or a database does not return just then.
func TestARecordThatMayBeReadLaterIsNotDoneWithout(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	mustUpdate(t, e, func(tx engine.Tx) {
		for _, key := range []string{"~a", "~k", "~z"} { // open reads one at an end, which is in the cache then
			tx.Put(engine.Row{Key: key, Value: strings.Repeat("x", 1<<17)})
		}
	})
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	var fails atomic.Pointer[error]
	errRead := errors.New("no answer")
	e = mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if err := fails.Load(); err != nil && op.Kind == errorfs.OpFileReadAt {
			return *err
		}
		return nil
	}))})
	fails.Store(&errRead)
	err := e.Update(t.Context(), func(tx engine.Tx) error {
		if _, _, err := tx.Try("~k"); !errors.Is(err, errRead) {
			t.Errorf("the record is read: %v", err)
		}
		tx.Put(engine.Row{Key: "dropped"})
		return nil
	})
	if !errors.Is(err, errRead) {
		t.Errorf("the transaction ends with %v", err)
	}
	var errSector error = &os.PathError{Op: "read", Path: "000004.sst", Err: syscall.EIO}
	fails.Store(&errSector)
	mustUpdate(t, e, func(tx engine.Tx) {
		if _, ok := tx.Get("dropped"); ok {
			t.Error("what followed is committed")
		}
		if _, _, err := tx.Try("~k"); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("of a bad sector: %v", err)
		}
	})
	fails.Store(nil)
	mustClose(t, e)
}
