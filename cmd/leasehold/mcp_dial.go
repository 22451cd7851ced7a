package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// helloTimeout bounds the exchange that opens a connection.
const helloTimeout = 10 * time.Second

// A dialer connects to the daemon, and starts one if it may. One attempt at a
// time uses it.
type dialer struct {
	socket  string
	starter *starter // nil: never

	// byHand is whether the daemon last connected to was started by
	// something else than a shim: a person, or a supervisor, who chose its
	// state and will start it again. A shim's own would take its place.
	byHand bool
}

func newDialer(cfg mcpConfig) *dialer {
	d := &dialer{socket: cfg.Socket}
	if cfg.Log != "" {
		d.starter = &starter{socket: cfg.Socket, log: cfg.Log}
	}
	return d
}

func (d *dialer) connect(ctx context.Context, hello server.Hello, start bool) attempt {
	nc, err := d.reach(ctx, start)
	if err != nil {
		return attempt{err: err}
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(helloTimeout))
	br, w, err := server.Greet(nc, hello)
	if !stop() || err != nil {
		nc.Close()
		return attempt{err: cmp.Or(err, context.Cause(ctx))}
	}
	nc.SetDeadline(time.Time{})
	d.know(nc)
	return attempt{link: newLink(nc, br), welcome: w}
}

// reach connects to the socket, and if it may, starts the daemon for that.
func (d *dialer) reach(ctx context.Context, start bool) (net.Conn, error) {
	nc, err := d.dial(ctx)
	if absent(err) && start && d.starter != nil && !d.byHand {
		if err = d.starter.start(ctx); err == nil {
			nc, err = d.dial(ctx)
		}
	}
	return nc, err
}

// know notes who started the daemon at the other end of nc.
func (d *dialer) know(nc net.Conn) {
	if pid, err := server.PeerPID(nc); err == nil {
		d.byHand = d.starter == nil || !d.starter.started(pid)
	}
}

func (d *dialer) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", d.socket)
}

// absent reports whether a dial found nobody.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
