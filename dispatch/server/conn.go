package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// errShutdown is why calls end whose daemon ends.
var errShutdown = errors.New("the daemon is shutting down")

// A conn is one client on the socket, after its hello: lines of JSON-RPC both
// ways.
//
// One goroutine reads. It waits for nothing but initialize, which waits for
// nothing, so it sees at once that the client is gone, has cancelled a call or
// releases what its other calls wait for. Each request runs on a goroutine of
// its own and writes its own answer.
//
// mcp-go's stdio transport was the choice not taken: five workers for all its
// requests, so that five blocked calls starve the release they wait for, and
// one client to a process.
type conn struct {
	server *Server
	*service
	se     *dispatch.Session
	client *client

	nc    net.Conn
	out   lineWriter
	calls calls
	wg    sync.WaitGroup // the goroutines of calls

	// resident is taken from by one goroutine that stays. A client that
	// calls one at a time, as most do, is served by it alone; whoever comes
	// while it is busy gets a goroutine of its own.
	resident chan func()
}

// ServeConn serves one client on nc, from its hello on, until the client goes
// or ctx ends. It closes nc. The caller vouches for peer: an operator is
// believed.
//
// A client that goes ends its session, and with it what the session holds. The
// end of ctx does not: the daemon may come back, and the client with it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, peer dispatch.Peer) {
	defer nc.Close()
	s.attendance.add(1)
	defer s.attendance.add(-1)
	// From here on the end of ctx interrupts reading, now and for ever.
	stop := context.AfterFunc(ctx, func() { nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	br := bufio.NewReaderSize(nc, 16<<10)
	se, err := s.welcome(ctx, nc, br, peer)
	if err != nil {
		s.opts.Log.Debug().Err(err).Int("pid", peer.PID).Msg("no session for a connection")
		return
	}
	c := &conn{server: s, service: s.serviceFor(se), se: se, client: newClient(), nc: nc, resident: make(chan func())}
	c.serve(ctx, br)
}

// serve reads until there is nothing more to read, and then ends the
// connection the way that fits.
func (c *conn) serve(ctx context.Context, br *bufio.Reader) {
	base, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	c.out = lineWriter{nc: c.nc, timeout: c.server.opts.WriteTimeout, cut: cut}
	base = mcpserver.WithSupportedProtocolVersions(base, legacyVersions)
	base = c.mcp.WithContext(base, c.client)

	if err := c.mcp.RegisterSession(base, c.client); err != nil {
		panic("server: a random id met itself: " + err.Error())
	}
	defer c.mcp.UnregisterSession(base, c.client.id)
	stop := context.AfterFunc(c.se.Context(), func() { c.nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	var notices sync.WaitGroup
	noticesCtx, stopNotices := context.WithCancel(base)
	notices.Go(func() { c.se.WatchLosses(noticesCtx, c.client.tellLoss) })
	notices.Go(func() { c.writeNotices(noticesCtx) })

	c.wg.Go(func() {
		for work := range c.resident {
			work()
		}
	})

	err := c.read(base, br)
	close(c.resident)
	switch {
	case ctx.Err() != nil:
		// The session stays. Short calls may finish: an answer that is lost
		// is a call made twice.
		c.calls.drain(errShutdown)
		c.waitCalls(c.server.opts.DrainTimeout)
		cut(errShutdown)
	case c.se.Context().Err() != nil:
		// Its calls end by themselves, and say why.
		err = context.Cause(c.se.Context())
		c.calls.cancelAll(err)
		c.waitCalls(c.server.opts.DrainTimeout)
		cut(err)
		c.close(err)
	default:
		// First the calls, then what they wait for: none of them is granted
		// what the session gives back.
		cut(err)
		err = context.Cause(base) // a failed write came first
		c.calls.cancelAll(err)
		c.close(fmt.Errorf("its connection ended: %w", err))
	}
	c.nc.Close() // whoever still writes stops
	stopNotices()
	notices.Wait()
	c.wg.Wait()
}

// close gives back what the session held, if this was its last connection.
func (c *conn) close(cause error) {
	log := c.server.opts.Log
	if err := c.se.Close(cause); err != nil {
		log.Error().Err(err).Stringer("session", c.se.ID()).Msg("a session could not be closed")
		return
	}
	log.Info().Stringer("session", c.se.ID()).Str("actor", c.se.Actor().Path).AnErr("cause", cause).Msg("disconnected")
}

// waitCalls waits for the calls under way, but no longer than limit.
func (c *conn) waitCalls(limit time.Duration) {
	done := make(chan struct{})
	go func() { // ends with the calls, which serve waits for
		defer close(done)
		c.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// read takes messages until it cannot, and says why.
func (c *conn) read(ctx context.Context, br *bufio.Reader) error {
	for {
		line, err := readLine(br, MaxMessage)
		switch {
		case errors.Is(err, errTooLong):
			c.out.write(errorReply(nil, mcp.INVALID_REQUEST, err.Error(), nil))
			return err
		case errors.Is(err, io.EOF):
			return errors.New("the client closed it")
		case errors.Is(err, os.ErrDeadlineExceeded):
			return errShutdown // or the session's end; serve knows
		case err != nil:
			return err
		case len(line) > 0:
			c.receive(ctx, line)
		}
	}
}

// receive takes one message and returns without waiting for its answer.
func (c *conn) receive(ctx context.Context, line []byte) {
	env, fault := parse(line)
	switch {
	case fault != nil:
		c.out.write(fault)
	case env.Method == string(mcp.MethodInitialize):
		// What the client sends next may rely on it.
		c.out.write(encodeReply(env.ID, c.mcp.HandleMessage(ctx, line)))
	case env.request():
		c.start(ctx, env, line)
	case env.Method == string(mcp.MethodNotificationCancelled):
		c.calls.cancel(callKey(env.Params.RequestID), errCancelled)
	case env.notification():
		c.mcp.HandleMessage(ctx, line)
	}
	// What is left is an answer, and the server asks clients nothing.
}

func (c *conn) start(ctx context.Context, env envelope, line []byte) {
	call, err := c.calls.begin(ctx, &env, len(line))
	if err != nil {
		c.out.write(refuseCall(&env, err))
		return
	}
	work := func() {
		defer c.calls.free(call)
		ctx := tools.WithCall(call.ctx, c.se.ID(), env.callName(), env.Params.Meta.Resent == true)
		answer := c.answer(ctx, c.se, &env, line)
		if c.calls.settle(call) {
			c.out.write(answer)
		}
	}
	select {
	case c.resident <- work: // a goroutine whose stack has grown to what a call takes
	default:
		c.wg.Go(work)
	}
}

// refuseCall answers a request that could not begin.
func refuseCall(env *envelope, err error) []byte {
	if errors.Is(err, errDuplicateID) {
		return errorReply(env.ID, mcp.INVALID_REQUEST, err.Error(), nil)
	}
	return Refusal(env.ID, env.Method, tools.RefusalOf(err))
}

// writeNotices writes what is told to the client unasked.
func (c *conn) writeNotices(ctx context.Context) {
	for {
		select {
		case notice := <-c.client.notices:
			c.out.write(encodeLine(notice))
		case <-ctx.Done():
			return
		}
	}
}
