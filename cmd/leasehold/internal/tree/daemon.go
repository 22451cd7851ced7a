package tree

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A runDaemon is the daemon of a dispatched run. It is started on demand.
type runDaemon struct {
	mu     sync.Mutex
	dialer *connection.Dialer // used by one attempt at a time
	last   *client.Client     // the last one, or nil
}

// newRunDaemon finds the daemon, so that the run's agents can be told its
// socket. A daemon that cannot be reached now may be reached later.
func newRunDaemon(cmd *cobra.Command) (*runDaemon, error) {
	dialer, err := connection.For(cmd)
	if err != nil {
		return nil, err
	}
	d := &runDaemon{dialer: dialer}
	if nc, err := d.reach(cmd.Context()); err == nil {
		nc.Close()
	}
	return d, nil
}

// tell says in opts where agents reach the daemon: at its socket, if it listens on this
// machine or is expected to, or at its servers.
func (d *runDaemon) tell(opts *launcher.Options) (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dialer.Elsewhere() {
		opts.Socket = d.dialer.Address()
		return nil
	}
	opts.Servers = d.dialer.Address()
	if file := os.Getenv("LEASEHOLD_SERVER_CA"); file != "" {
		opts.Authority, err = filepath.Abs(file)
	}
	return err
}

// connect opens an operator's connection.
func (d *runDaemon) connect(ctx context.Context) (*client.Client, error) {
	nc, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := d.dialer.UntilSilent(ctx)
	defer cancel()
	c, err := connection.Handshake(ctx, nc, server.Hello{Operator: true}, "leasehold dispatch")
	if err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last = c
	}
	return c, err
}

// advise adds to a refusal what to do if it may come from a daemon of another version.
func (d *runDaemon) advise(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last == nil {
		return err
	}
	return connection.OtherVersion(d.last, err)
}

func (d *runDaemon) reach(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dialer.Reach(ctx, true)
}
