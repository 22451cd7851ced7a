package connection

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// HelloTimeout bounds the exchange that opens a connection.
const HelloTimeout = 10 * time.Second

// Between attempts to connect a client waits a little longer each time.
const (
	FirstRetry = 20 * time.Millisecond
	LastRetry  = time.Second
)

// A Dialer connects to the daemon, and starts one if it may. One attempt at a
// time uses it.
type Dialer struct {
	Socket  string
	starter *starter // nil: never

	// byHand is whether the daemon last connected to was started by
	// something else than a shim: a person, or a supervisor, who chose its
	// state and will start it again. A shim's own would take its place.
	byHand bool
}

// NewDialer returns a dialer for a socket. With a log it may start a daemon,
// which writes there.
func NewDialer(socket, log string) *Dialer {
	d := &Dialer{Socket: socket}
	if log != "" {
		d.starter = &starter{socket: socket, log: log}
	}
	return d
}

// Reach connects to the socket, and if it may, starts the daemon for that.
func (d *Dialer) Reach(ctx context.Context, start bool) (net.Conn, error) {
	nc, err := d.Dial(ctx)
	if Absent(err) && start && d.starter != nil && !d.byHand {
		if err = d.starter.start(ctx); err == nil {
			nc, err = d.Dial(ctx)
		}
	}
	return nc, err
}

// Know notes who started the daemon at the other end of nc.
func (d *Dialer) Know(nc net.Conn) {
	if pid, err := server.PeerPID(nc); err == nil {
		d.byHand = d.starter == nil || !d.starter.started(pid)
	}
}

func (d *Dialer) Dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", d.Socket)
}

// Absent reports whether a dial found nobody.
func Absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}
