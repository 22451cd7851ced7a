package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A runDaemon is the daemon that a run is dispatched with: the one at the
// socket, or one that is started there when none runs.
type runDaemon struct {
	socket  string
	starter *starter

	mu     sync.Mutex
	byHand bool // it was started by somebody, who will start it again
}

func newRunDaemon(cmd *cobra.Command) (*runDaemon, error) {
	socket, log, err := shimPaths(cmd)
	if err != nil {
		return nil, err
	}
	if err := server.CheckSocketPath(socket); err != nil {
		return nil, usage(err)
	}
	return &runDaemon{socket: socket, starter: &starter{socket: socket, log: log}}, nil
}

// connect opens an operator's connection.
func (d *runDaemon) connect(ctx context.Context) (*client.Client, error) {
	nc, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, helloTimeout, fmt.Errorf("the daemon at %s does not answer", d.socket))
	defer cancel()
	c, err := client.Connect(ctx, nc, server.Hello{Operator: true}, "leasehold dispatch", version())
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return c, err
}

// dial finds the daemon. One at a time starts one.
func (d *runDaemon) dial(ctx context.Context) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dialer := net.Dialer{Timeout: time.Minute}
	nc, err := dialer.DialContext(ctx, "unix", d.socket)
	if absent(err) && !d.byHand {
		if err = d.starter.start(ctx); err == nil {
			nc, err = dialer.DialContext(ctx, "unix", d.socket)
		}
	}
	if err != nil {
		return nil, err
	}
	if pid, err := server.PeerPID(nc); err == nil {
		d.byHand = !d.starter.started(pid)
	}
	return nc, nil
}
