package book

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A daemon is the daemon's packages in this process, in a bubble, over a file
// system in memory that can crash.
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

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	d := &daemon{t: t, fs: vfs.NewCrashableMem()}
	d.start()
	return d
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
	d.server = server.New(d.state, server.Options{Version: "book"})
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

// Dial and Restart make it a daemon that stories can be told to.
func (d *daemon) Dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	d.wg.Go(func() { d.server.ServeConn(d.ctx, ours, process.Peer{Transport: "unix"}) })
	return theirs, nil
}

func (d *daemon) Restart(context.Context) error {
	left := d.fs.CrashClone(vfs.CrashCloneCfg{})
	d.stop()
	d.fs = left
	d.start()
	return nil
}

// actor makes an actor of run "book" and connects as it.
func (d *daemon) actor(n dispatch.NewActor) *client.Client {
	d.t.Helper()
	n.Run = "book"
	_, token, err := d.state.AddActor(d.ctx, n)
	if err != nil {
		d.t.Fatal(err)
	}
	nc, _ := d.Dial(d.ctx)
	c, err := client.Connect(d.ctx, nc, server.Hello{Token: token}, n.Name, "book")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	return c
}

// A reply is what a call came to.
type reply struct {
	text   string
	object json.RawMessage
	code   string // of a refusal
}

// call makes a call and wants a reply, which may be a refusal.
func (d *daemon) call(c *client.Client, tool string, args map[string]any) reply {
	d.t.Helper()
	answer, err := c.Call(d.ctx, tool, args)
	r := reply{text: answer.Text, object: answer.Object}
	var refusal *client.Refusal
	switch {
	case errors.As(err, &refusal):
		r.text, r.object, r.code = refusal.Text, refusal.Object, refusal.Code
	case err != nil:
		d.t.Fatalf("%s: %v", tool, err)
	}
	return r
}
