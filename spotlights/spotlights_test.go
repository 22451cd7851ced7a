package spotlights_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/spotlights"
)

// Every story goes as promised, with agents that read only texts. Stories
// without processes run in a bubble of fake time.
func TestStories(t *testing.T) {
	leasehold := filepath.Join(t.TempDir(), "leasehold")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", leasehold, "../cmd/leasehold")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for _, story := range spotlights.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			if story.Real {
				if err := tell(t, story, leasehold); err != nil {
					t.Fatal(err)
				}
				return
			}
			synctest.Test(t, func(t *testing.T) {
				d := &textDaemon{daemon: daemon{t: t, fs: vfs.NewCrashableMem()}}
				d.start()
				defer d.stop()
				if err := story.Tell(t.Context(), d, t.Output()); err != nil {
					t.Fatal(err)
				}
				if d.read == 0 {
					t.Error("nobody read anything")
				}
			})
		})
	}
}

// tell runs a story against a machine.
func tell(t *testing.T, story spotlights.Story, leasehold string) error {
	m, err := spotlights.NewMachine(t.Context(), leasehold)
	if err != nil {
		return err
	}
	err = story.Tell(t.Context(), m, t.Output())
	return errors.Join(err, m.Close())
}

// A machine that cannot start leaves nothing behind, and the error says why.
func TestAMachineThatCannotStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	if _, err := spotlights.NewMachine(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// The scripts of processes read what leasehold call prints, which is the text
// of a reply, and no objects.
func TestScriptsReadTextsAlone(t *testing.T) {
	source, err := os.ReadFile("processes.go")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for line := range strings.Lines(string(source)) {
		if strings.Contains(line, "leasehold call ") {
			calls++
			if strings.Contains(line, "--json") || strings.Contains(line, "--field") {
				t.Errorf("a script reads an object: %s", line)
			}
		}
	}
	if calls == 0 {
		t.Error("there is no script")
	}
}

// A story with processes is refused without a machine.
func TestARealStoryNeedsAMachine(t *testing.T) {
	for _, story := range spotlights.Stories() {
		if story.Real && story.Tell(t.Context(), new(daemon), io.Discard) == nil {
			t.Errorf("%s was told to a daemon in this process", story.Name)
		}
	}
}

// A daemon runs the daemon's packages in this process.
type daemon struct {
	t      *testing.T
	fs     *vfs.MemFS
	eng    *pebble.Engine
	state  *dispatch.State
	server *server.Server
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (d *daemon) start() {
	d.t.Helper()
	var err error
	if d.eng, err = pebble.Open(pebble.Options{Dir: "state", FS: d.fs}); err != nil {
		d.t.Fatal(err)
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if d.state, err = dispatch.Open(d.ctx, d.eng, dispatch.Options{}); err != nil {
		d.t.Fatal(err)
	}
	d.server = server.New(d.state, server.Options{Version: "test"})
	d.wg.Go(func() {
		if err := d.state.Tend(d.ctx); err != nil {
			d.t.Error(err)
		}
	})
}

func (d *daemon) stop() {
	d.t.Helper()
	d.cancel()
	d.wg.Wait()
	if err := errors.Join(d.state.Check(context.Background()), d.eng.Check()); err != nil {
		d.t.Error(err)
	}
	if err := d.eng.Close(); err != nil {
		d.t.Error(err)
	}
}

func (d *daemon) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	d.wg.Go(func() { d.server.ServeConn(d.ctx, ours, process.Peer{Transport: "unix"}) })
	return theirs, nil
}

// Restart continues with what a power cut would have left.
func (d *daemon) Restart(context.Context) error {
	left := d.fs.CrashClone(vfs.CrashCloneCfg{})
	d.stop()
	d.fs = left
	d.start()
	return nil
}
