package tree

import (
	"context"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A runDaemon is the daemon that a run is dispatched with: the one at the
// socket, or one that is started there when none runs.
type runDaemon struct {
	socket string

	mu     sync.Mutex
	dialer *connection.Dialer // one attempt at a time uses it
}

func newRunDaemon(cmd *cobra.Command) (*runDaemon, error) {
	socket, log, err := place.SocketAndLog(cmd)
	if err != nil {
		return nil, err
	}
	if err := server.CheckSocketPath(socket); err != nil {
		return nil, exit.Usage(err)
	}
	return &runDaemon{socket: socket, dialer: connection.NewDialer(socket, log)}, nil
}

// connect opens an operator's connection.
func (d *runDaemon) connect(ctx context.Context) (*client.Client, error) {
	nc, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := connection.UntilSilent(ctx, d.socket)
	defer cancel()
	return connection.Handshake(ctx, nc, server.Hello{Operator: true}, "leasehold dispatch")
}

func (d *runDaemon) reach(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nc, err := d.dialer.Reach(ctx, true)
	if err == nil {
		d.dialer.Know(nc)
	}
	return nc, err
}
