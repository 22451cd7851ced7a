package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// errNoDaemon is what a client finds where none runs.
var errNoDaemon = errors.New("no daemon")

// connect opens a session with the daemon at the command's socket.
func connect(cmd *cobra.Command, hello server.Hello) (*client.Client, error) {
	socket, err := socketOf(cmd)
	if err != nil {
		return nil, err
	}
	if err := server.CheckSocketPath(socket); err != nil {
		return nil, usage(err)
	}
	ctx, cancel := untilSilent(cmd.Context(), socket)
	defer cancel()
	nc, err := dialDaemon(ctx, socket)
	if err != nil {
		return nil, err
	}
	c, err := handshake(ctx, nc, hello, "leasehold")
	return c, whoWasRefused(err, hello)
}

// untilSilent is ctx for as long as a daemon may take to let somebody in.
func untilSilent(ctx context.Context, socket string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, helloTimeout, fmt.Errorf("the daemon at %s does not answer", socket))
}

// dialDaemon connects to a daemon that must be there.
func dialDaemon(ctx context.Context, socket string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if absent(err) {
		return nil, hint(fmt.Errorf("%w listens at %s", errNoDaemon, socket),
			"start one with leasehold serve, or name its socket with --socket or LEASEHOLD_SOCKET")
	}
	return nc, err
}

// handshake opens a session over nc. If ctx ends it, its cause is the error.
func handshake(ctx context.Context, nc net.Conn, hello server.Hello, name string) (*client.Client, error) {
	c, err := client.Connect(ctx, nc, hello, name, version())
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return c, err
}

// whoWasRefused says where the credentials came from that the daemon refused.
func whoWasRefused(err error, hello server.Hello) error {
	var refused *server.HelloError
	switch {
	case !errors.As(err, &refused) || refused.Code != "UNAUTHENTICATED":
		return err
	case hello.Handle != "":
		return hint(err, "LEASEHOLD_SESSION names a session that has ended: unset it to call in one of its own")
	case hello.Token != "":
		return hint(err, "LEASEHOLD_TOKEN is not, or no longer, an actor's: leasehold actor add makes one")
	default:
		return err
	}
}

// operator opens a session for the user of the daemon.
func operator(cmd *cobra.Command) (*client.Client, error) {
	return connect(cmd, server.Hello{Operator: true})
}

// call calls a tool. The end of the connection is told in words.
func call(ctx context.Context, c *client.Client, tool string, args any) (client.Answer, error) {
	answer, err := c.Call(ctx, tool, args)
	return answer, inWords(ctx, tool, err)
}

// brokeOff reports whether a call has no answer because its connection ended.
func brokeOff(err error) bool {
	for _, end := range []error{transport.ErrTransportClosed, net.ErrClosed, syscall.EPIPE, syscall.ECONNRESET, io.EOF} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// inWords is the error of a call with what to do about it.
func inWords(ctx context.Context, tool string, err error) error {
	switch {
	case ctx.Err() != nil:
	case brokeOff(err):
		return hint(fmt.Errorf("the daemon ended the connection before it answered %s", tool),
			"once it runs again, see what came of it with leasehold leases and leasehold kv")
	case isCode(err, "NOT_FOUND") && strings.HasPrefix(tool, "operator_"):
		return hint(err, "leasehold tree --all shows the runs and the paths of their actors")
	}
	return err
}

func isCode(err error, code string) bool {
	var refusal *client.Refusal
	return errors.As(err, &refusal) && refusal.Code == code
}

// asOperator makes one call as the operator.
func asOperator(cmd *cobra.Command, tool string, args map[string]any) (client.Answer, error) {
	c, err := operator(cmd)
	if err != nil {
		return client.Answer{}, err
	}
	defer c.Close()
	return call(cmd.Context(), c, tool, args)
}

// asJSON reports a refusal on stdout, for programs that read JSON there.
func asJSON(wanted bool, stdout io.Writer, err error) error {
	var (
		refusal *client.Refusal
		refused *server.HelloError
	)
	switch {
	case !wanted:
		return err
	case errors.As(err, &refusal):
		fmt.Fprintf(stdout, "%s\n", refusal.Object)
		return errReported
	case errors.As(err, &refused):
		return errors.Join(errReported, json.NewEncoder(stdout).Encode(refused))
	default:
		return err
	}
}

// actorPath reads a path of actors. Names have no slash, so that S1/W2 can
// stand for S1→W2, which not every keyboard has.
func actorPath(s string) string { return strings.ReplaceAll(s, "/", dispatch.Separator) }
