package main

import (
	"context"
	"net"
	"sync"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A runDaemon is the daemon that a run is dispatched with: the one at the
// socket, or one that is started there when none runs.
type runDaemon struct {
	socket string

	mu     sync.Mutex
	dialer *dialer // one attempt at a time uses it
}

func newRunDaemon(cmd *cobra.Command) (*runDaemon, error) {
	socket, log, err := shimPaths(cmd)
	if err != nil {
		return nil, err
	}
	if err := server.CheckSocketPath(socket); err != nil {
		return nil, usage(err)
	}
	return &runDaemon{socket: socket, dialer: newDialer(mcpConfig{Socket: socket, Log: log})}, nil
}

// connect opens an operator's connection.
func (d *runDaemon) connect(ctx context.Context) (*client.Client, error) {
	nc, err := d.reach(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := untilSilent(ctx, d.socket)
	defer cancel()
	return handshake(ctx, nc, server.Hello{Operator: true}, "leasehold dispatch")
}

func (d *runDaemon) reach(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nc, err := d.dialer.reach(ctx, true)
	if err == nil {
		d.dialer.know(nc)
	}
	return nc, err
}
