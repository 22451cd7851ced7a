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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// errShutdown is why calls end when the daemon stops. Their clients send them
// again to the next daemon.
var errShutdown = cutOff("the daemon is shutting down: try again in a few seconds, when it or the next one is there")

// errHungUp is the end of a connection whose client has read everything that
// was written. A client that closes its end with unread data resets the
// connection.
var errHungUp = errors.New("the client closed it")

// A conn is a client on the socket after its hello: lines of JSON-RPC in both
// directions.
//
// One goroutine at a time reads. It serves a call that comes alone itself; if
// that takes long, another goroutine takes over the reading. Other calls run on
// their own goroutines. So no call keeps the daemon from noticing that the client
// is gone, has cancelled a call, or releases what its other calls wait for.
//
// The alternative was mcp-go's stdio transport. We did not choose it: it has
// five workers for all requests, so that five blocked calls starve the release
// they wait for, and it serves one client for each process.
type conn struct {
	server *Server
	*service
	visit
	client *client

	nc       net.Conn
	in       *bufio.Reader // used by the goroutine that reads
	out      lineWriter
	requests requests
	room     chan struct{}  // contains an element for each call that does not wait
	wg       sync.WaitGroup // for the goroutines that read and run calls
	ended    chan error     // receives why reading has ended

	leaving <-chan struct{} // closed when the daemon lets the client go
	goodbye atomic.Bool     // the client has said that it ends the connection

	turn   atomic.Uint64 // odd while the goroutine that reads serves a call
	relief *time.Timer   // takes over the reading if that lasts too long
}

// ServeConn serves one client on nc, beginning with its hello, until the client
// leaves or ctx ends. It closes nc. The caller guarantees that peer is right; a
// hello as operator is believed.
//
// When a client leaves, its session ends and releases what it holds. The end of
// ctx does not end the session: the daemon may come back, and the client with
// it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, peer process.Peer) {
	defer nc.Close()
	s.attendance.add(1)
	defer s.attendance.add(-1)
	// From here on the end of ctx interrupts reading for good.
	interrupt := func() { nc.SetReadDeadline(time.Unix(1, 0)) }
	stop := context.AfterFunc(ctx, interrupt)
	defer func() { stop() }()

	number := s.connections.Add(1) // before its client can open another
	br := bufio.NewReaderSize(nc, 16<<10)
	v, err := s.welcome(ctx, nc, br, peer)
	if err != nil {
		s.opts.Log.Debug().Err(err).Int("pid", peer.PID).Msg("no session for a connection")
		return
	}
	if v.none() {
		return // the client was passed on, and has left
	}
	defer v.leave()
	var watch sync.WaitGroup
	defer watch.Wait()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	defer context.AfterFunc(v.home.ctx, leave)()
	// Reading is interrupted only after this ctx has ended, or serve would take
	// the client for gone, and end its session.
	stop()
	stop = context.AfterFunc(ctx, interrupt)
	c := &conn{
		server: s, service: v.home.serviceFor(v.se), visit: v, client: newClient(),
		nc: nc, in: br, ended: make(chan error, 1),
		room: make(chan struct{}, maxRoom), leaving: ctx.Done(),
	}
	if v.access != "" {
		watch.Go(func() {
			if err := v.home.state.AwaitVoid(ctx, v.access); errors.Is(err, dispatch.ErrUnauthenticated) {
				_ = v.se.Close(err) // it holds nothing, so this cannot fail
			}
		})
	}
	c.client.groups = v.groups
	if v.groups != nil {
		v.se.Show(v.groups)
	}
	c.requests.conn, c.requests.share = number, c.share
	c.out.turn = make(chan struct{}, 1)
	c.serve(ctx)
	if _, doors := nc.(*passed); !doors && (v.home.ctx.Err() != nil || v.home.failed() != nil) {
		s.farewells.add(v.home.partition, peer)
	}
}

// serve reads until there is no more to read, and then ends the connection
// according to the reason.
func (c *conn) serve(ctx context.Context) {
	base, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	c.out.nc, c.out.timeout, c.out.cut, c.out.shares = c.nc, c.server.opts.WriteTimeout, cut, c.server.shares
	base = withClient(base, c.client)

	stop := context.AfterFunc(c.se.Context(), func() { c.nc.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	var notices sync.WaitGroup
	noticesCtx, stopNotices := context.WithCancel(base)
	tellNotices := c.se.WatchNotices()
	notices.Go(func() { tellNotices(noticesCtx, c.client.tellNotice) })
	notices.Go(func() { c.client.tellUpdates(noticesCtx, c.se) })
	notices.Go(func() { c.writeNotices(noticesCtx) })

	c.relief = time.AfterFunc(patience, func() { c.relieve(base) })
	defer c.relief.Stop()
	c.wg.Go(func() { c.read(base) })
	err := <-c.ended
	switch {
	case ctx.Err() != nil:
		// The session stays. Short calls may finish, because a call whose
		// answer is lost would have to be made twice.
		c.requests.drain(errShutdown)
		c.waitCalls(c.server.opts.DrainTimeout)
		cut(errShutdown)
	case c.se.Context().Err() != nil:
		// The calls end by themselves and say why.
		err = context.Cause(c.se.Context())
		c.requests.cancelAll(err, false)
		c.waitCalls(c.server.opts.DrainTimeout)
		cut(err)
		c.close(err)
	case c.doorLost(err):
		// The client may come back through another server, also for its calls.
		c.requests.drain(errDoorLost)
		c.waitCalls(c.server.opts.DrainTimeout)
		cut(errDoorLost)
		c.nc.Close()
		stopNotices()
		select {
		case <-time.After(c.returnWithin()):
			c.close(errDoorLost)
		case <-ctx.Done():
		case <-c.se.Context().Done():
			c.close(context.Cause(c.se.Context()))
		}
	default:
		// The calls end first, and then the session releases what it holds, so
		// that none of the calls is granted it, and each is undone while its
		// session exists.
		cut(err)
		if !errors.Is(err, errHungUp) {
			c.server.retell(c.se) // an answer was unread when it was closed
		}
		err = context.Cause(base) // the cause may be an earlier failed write
		c.requests.cancelAll(err, true)
		c.waitCalls(c.server.opts.DrainTimeout)
		c.close(connEnded(err))
	}
	c.nc.Close() // this stops any remaining writer
	stopNotices()
	notices.Wait()
	c.wg.Wait()
}

// connEnded returns the cause of a session whose connection ended with err. People read
// it, and chance decides whether a read or a write is the first to fail.
func connEnded(err error) error {
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		err = errHungUp
	}
	return fmt.Errorf("its connection ended: %w", err)
}

// doorLost reports whether a connection ended because of the server that passed
// the client on, as far as this server can tell.
func (c *conn) doorLost(err error) bool {
	switch nc := c.nc.(type) {
	case *remote:
		return !c.goodbye.Load() // otherwise a network between may have cut it
	case *passed:
		return !errors.Is(err, errWent) || nc.remote && !c.goodbye.Load()
	}
	return false
}

// returnWithin is how long a client may take to come back after its connection
// was lost.
func (c *conn) returnWithin() time.Duration {
	switch nc := c.nc.(type) {
	case *remote:
		if !nc.doorLost() {
			return c.server.opts.HTTPGrace
		}
	case *passed:
		if nc.remote {
			return max(c.server.opts.HTTPGrace, c.server.opts.DoorGrace)
		}
	}
	return c.server.opts.DoorGrace
}

// close releases what the session held, if this was its last connection.
func (c *conn) close(cause error) {
	log := c.server.opts.Log
	if err := c.se.Close(cause); err != nil {
		log.Error().Err(err).Stringer("session", c.se.ID()).Msg("a session could not be closed")
		return
	}
	log.WithLevel(visitLevel(c.se.Actor())).Stringer("session", c.se.ID()).Str("actor", c.se.Actor().Path).AnErr("cause", cause).Msg("disconnected")
}

// waitCalls waits for the running calls, but no longer than limit.
func (c *conn) waitCalls(limit time.Duration) {
	done := make(chan struct{})
	go func() { // ends with the calls, for which serve waits
		defer close(done)
		c.wg.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// read reads messages until that fails, and reports why, or until another
// goroutine has taken over.
func (c *conn) read(ctx context.Context) {
	for reading := true; reading; {
		line, err := c.next(ctx)
		switch {
		case errors.Is(err, errTooLong):
			c.out.write(wire.ErrorReply(nil, wire.InvalidRequest, err.Error(), nil))
		case errors.Is(err, io.EOF):
			err = errHungUp
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = errShutdown // or the session has ended; serve knows which
		}
		if err != nil {
			c.ended <- err
			return
		}
		if len(line) > 0 {
			reading = c.receive(ctx, line)
		}
	}
}

// next reads the next message. A large one must first find room among those that
// are being received, and then arrive in time, so that clients that send half of
// one cannot fill the memory.
func (c *conn) next(ctx context.Context) (line []byte, err error) {
	var slow *time.Timer
	line, err = readLine(c.in, wire.MaxMessage, func() error {
		if !c.take(ctx, c.share.Arriving) {
			return os.ErrDeadlineExceeded
		}
		if !c.take(ctx, c.server.shares.Arriving) {
			<-c.share.Arriving
			return os.ErrDeadlineExceeded
		}
		slow = time.AfterFunc(bodyTimeout, func() { c.nc.SetReadDeadline(time.Unix(1, 0)) })
		return nil
	})
	if slow != nil {
		<-c.server.shares.Arriving
		<-c.share.Arriving
		if !slow.Stop() {
			return nil, errLateMessage
		}
	}
	return line, err
}

// receive handles one message, and reports whether the caller must continue
// reading.
func (c *conn) receive(ctx context.Context, line []byte) (reading bool) {
	env, fault := c.server.parse(line)
	switch {
	case fault != nil:
		c.out.write(fault)
	case env.Method == wire.Initialize:
		// The client's next messages may depend on this one.
		c.out.write(c.protocol(ctx, c.se, &env, line))
	case env.Request():
		return c.start(ctx, env, line)
	case env.Method == wire.Goodbye:
		c.goodbye.Store(true)
	case env.Method == wire.Cancelled:
		if r, _ := c.requests.cancel(wire.Key(env.Params.RequestID), errCancelled); r != nil {
			c.server.undo(c.se, r)
		} else {
			c.server.retell(c.se)
		}
	}
	// Other notifications change nothing. The rest are answers, and the server asks
	// clients nothing.
	return true
}

func (c *conn) start(ctx context.Context, env wire.Message, line []byte) (reading bool) {
	waits := c.waits(&env)
	if !waits && !c.enter(ctx) {
		return true
	}
	r, err := c.requests.begin(ctx, &env, waits, len(line), c.nameOn(c.requests.conn, c.se, &env, waits))
	if err != nil {
		if !waits {
			<-c.room
		}
		c.out.write(refuseCall(&env, err))
		return true
	}
	work := func() {
		defer c.leave(r)
		defer c.requests.free(r)
		if r.name.Lasting() {
			defer c.server.marked.enter(&c.requests, r)()
		}
		void := c.void(r.ctx)
		var answer []byte
		if void == nil {
			answer = c.serveCall(c.share, r, &c.out, c.se, &env, line, mcpForm{})
			if waits {
				void = c.void(r.ctx)
			}
		}
		if void != nil {
			answer = refuseCall(&env, void)
		}
		if c.home.failed() != nil {
			c.requests.cutOff(r, errSpreadOver) // the next leader of the state answers it
		}
		switch {
		case !c.requests.settle(r):
			if c.requests.toUndo(r) {
				c.server.undo(c.se, r)
			}
			c.requests.forget(r)
		case c.out.write(answer):
		case c.requests.lost(r):
			c.server.undo(c.se, r)
			c.requests.forget(r)
		default:
			c.server.retell(c.se)
		}
		wire.Reuse(answer)
	}
	switch {
	case r.waits:
		if c.take(ctx, c.share.Starting) {
			r.starting = c.share.Starting
		}
		c.wg.Go(func() {
			defer r.started()
			work()
		})
		return true
	case c.in.Buffered() > 0:
		c.wg.Go(work)
		return true
	}
	return c.serveAlone(work)
}

// void returns why the token that let the client in is valid no more, or nil. The session
// ends then, but a call may come before that.
func (c *conn) void(ctx context.Context) error {
	if c.access == "" {
		return nil
	}
	if _, err := c.home.state.CheckAccess(ctx, c.access); errors.Is(err, dispatch.ErrUnauthenticated) {
		return err
	}
	return nil
}

// enter waits until there is room for another call that does not wait. Nothing
// is read meanwhile: such calls end by themselves, and those of a client that
// does not read its answers end with the client. It reports false if the
// connection ends.
func (c *conn) enter(ctx context.Context) bool { return c.take(ctx, c.room) }

// take waits for room, and reports false if the connection ends.
func (c *conn) take(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-c.leaving:
	case <-c.se.Context().Done():
	}
	return false
}

func (c *conn) leave(r *request) {
	if !r.waits {
		<-c.room
	}
}

// patience is the longest time that nobody reads. Calls that wait for no more
// than the disk have finished by then.
const patience = 20 * time.Millisecond

// serveAlone runs a call on the goroutine that reads, if the client has sent
// nothing more yet. Most clients send nothing before they have the answer, and
// waking another goroutine takes as long as a short call: with one client, an
// empty call takes 24 µs instead of 37.
func (c *conn) serveAlone(work func()) (reading bool) {
	turn := c.turn.Add(1)
	c.relief.Reset(patience)
	work()
	return c.turn.CompareAndSwap(turn, turn+1)
}

// relieve takes over the reading from a goroutine that is serving a call.
func (c *conn) relieve(ctx context.Context) {
	if turn := c.turn.Load(); turn%2 == 1 && c.turn.CompareAndSwap(turn, turn+1) {
		c.wg.Go(func() { c.read(ctx) })
	}
}

// refuseCall answers a request that could not begin.
func refuseCall(env *wire.Message, err error) []byte {
	if _, duplicate := errors.AsType[duplicateError](err); duplicate {
		return wire.ErrorReply(env.ID, wire.InvalidRequest, err.Error(), nil)
	}
	return Refusal(env.ID, env.Method, tools.RefusalOf(err))
}

// writeNotices writes the notices to the client.
func (c *conn) writeNotices(ctx context.Context) {
	for {
		select {
		case notice := <-c.client.notices:
			c.out.write(wire.Line(notice))
		case update := <-c.client.updates:
			c.out.write(wire.Line(update))
		case <-ctx.Done():
			return
		}
	}
}
