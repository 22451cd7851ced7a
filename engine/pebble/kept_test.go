package pebble_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A deadDisk writes and syncs no log any more once it is dead.
type deadDisk struct{ dead atomic.Bool }

func (*deadDisk) String() string { return "dead" }

func (d *deadDisk) MaybeError(op errorfs.Op) error {
	if d.dead.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
		return syscall.EIO // as the system returns it for a sync: without the file
	}
	return nil
}

// A commit that must survive the process only is on the disk soon after. An engine
// with no other commits notices that its disk has failed, and names the file.
func TestWhatIsKeptForTheProcessReachesTheDiskSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, disk := vfs.NewCrashableMem(), new(deadDisk)
		e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(files, disk)})
		put := func(key string) error {
			return e.Update(engine.Local(t.Context()), func(tx engine.Tx) error { tx.Put(engine.Row{Key: key}); return nil })
		}
		if err := put("early"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		disk.dead.Store(true)
		left := files.CrashClone(vfs.CrashCloneCfg{})
		if err := put("late"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := put("later"); !errors.Is(err, engine.ErrFailed) || !strings.Contains(err.Error(), ".log: input/output error") {
			t.Errorf("a commit on a disk that failed seconds ago: %v", err)
		}
		if err := e.Close(); err == nil {
			t.Error("it closed without an error")
		}

		e = mustOpen(t, pebble.Options{Dir: "state", FS: left})
		if rows, err := contentsOf(t, e); err != nil || !strings.Contains(rows, "early") {
			t.Errorf("after the end of the machine: %v, rows %s", err, rows)
		}
		mustClose(t, e)
	})
}
