package spotlights_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/spotlights"
)

// Every story goes as promised, in a bubble of fake time.
func TestStories(t *testing.T) {
	for _, story := range spotlights.Stories() {
		t.Run(story.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &daemon{t: t, fs: vfs.NewCrashableMem()}
				d.start()
				defer d.stop()
				if err := story.Tell(t.Context(), d, t.Output()); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A daemon is the daemon's packages in this process.
type daemon struct {
	t      *testing.T
	fs     *vfs.MemFS
	eng    *pebble.Engine
	server *server.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func (d *daemon) start() {
	d.t.Helper()
	var err error
	if d.eng, err = pebble.Open(pebble.Options{Dir: "state", FS: d.fs}); err != nil {
		d.t.Fatal(err)
	}
	state, err := dispatch.Open(context.Background(), d.eng, dispatch.Options{})
	if err != nil {
		d.t.Fatal(err)
	}
	d.server = server.New(state, server.Options{Version: "test"})
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	d.wg.Go(func() {
		if err := state.Tend(ctx); err != nil {
			d.t.Error(err)
		}
	})
}

func (d *daemon) stop() {
	d.t.Helper()
	d.cancel()
	d.wg.Wait()
	if err := d.eng.Check(); err != nil {
		d.t.Error(err)
	}
	if err := d.eng.Close(); err != nil {
		d.t.Error(err)
	}
}

func (d *daemon) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	stop := d.cancel
	d.cancel = func() { stop(); cancel() }
	d.wg.Go(func() { d.server.ServeConn(ctx, ours, dispatch.Peer{Transport: "unix"}) })
	return theirs, nil
}

// Restart leaves what a power cut would have left.
func (d *daemon) Restart(context.Context) error {
	left := d.fs.CrashClone(vfs.CrashCloneCfg{})
	d.stop()
	d.fs = left
	d.start()
	return nil
}
