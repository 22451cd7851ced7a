package spotlights_test

import (
	"context"
	"errors"
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
	d.wg.Go(func() { d.server.ServeConn(d.ctx, ours, dispatch.Peer{Transport: "unix"}) })
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
