package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/engine/pebble"
)

// A heldDisk makes no directory of a copy before it is let go.
type heldDisk struct {
	vfs.FS
	letGo chan struct{}
}

func (d heldDisk) MkdirAll(dir string, mode os.FileMode) error {
	if strings.Contains(dir, unfinished) {
		<-d.letGo
	}
	return d.FS.MkdirAll(dir, mode)
}

// A client that gives up while the daemon makes the copy removes it once the daemon has
// stopped. Nothing comes back. If the daemon does not stop, the client says what is left.
func TestABackupThatIsGivenUpLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		stops time.Duration // after the client has given up
		left  bool
	}{
		"the daemon stops": {time.Second, false},
		"it does not":      {time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, said := t.TempDir(), new(strings.Builder)
			synctest.Test(t, func(t *testing.T) {
				disk := heldDisk{vfs.Default, make(chan struct{})}
				eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "state"), FS: disk})
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := eng.Close(); err != nil {
						t.Error(err)
					}
				}()
				b := backingUp{dir: filepath.Join(dir, "copy"), progress: said}
				if err := os.MkdirAll(b.own(), 0o700); err != nil {
					t.Fatal(err)
				}
				ctx, giveUp := context.WithCancel(t.Context())
				made := make(chan error, 1)
				go func() { made <- backUp(ctx, eng, b.copy(), zerolog.Nop()) }()
				synctest.Wait()
				giveUp()
				time.AfterFunc(c.stops, func() { close(disk.letGo) })
				if err := b.discard(); err != nil {
					t.Error(err)
				}
				if err := <-made; !errors.Is(err, context.Canceled) {
					t.Errorf("the daemon ended with %v", err)
				}
				if _, err := os.Stat(b.own()); errors.Is(err, fs.ErrNotExist) == c.left {
					t.Errorf("the directory: %v", err)
				}
				if told := strings.Contains(said.String(), "remove "+b.own()); told != c.left {
					t.Errorf("it says %q", said)
				}

				// What the client has removed is not made again.
				if err := os.RemoveAll(b.own()); err != nil {
					t.Fatal(err)
				}
				if err := backUp(t.Context(), eng, b.copy(), zerolog.Nop()); err == nil {
					t.Error("it was made")
				}
				if _, err := os.Stat(b.own()); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the directory: %v", err)
				}
			})
		})
	}
}
