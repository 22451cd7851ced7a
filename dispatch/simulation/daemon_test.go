package simulation

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

var errNoDaemon = errors.New("no daemon listens")

// A daemon is one life of the daemon, from an open of its state to its end.
type daemon struct {
	fs     *vfs.MemFS
	eng    *pebble.Engine
	state  *dispatch.State
	server *server.Server
	web    *listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// dead: nothing that the daemon writes from here on reaches a client.
	dead atomic.Bool

	mu    sync.Mutex
	conns []net.Conn // both ends of all that were opened
}

// startDaemon opens the state in fs and serves it.
func startDaemon(fs *vfs.MemFS, on *disk, c clock.Clock, alive func(process.Peer) bool, fault func(format string, args ...any)) (*daemon, error) {
	d := &daemon{fs: fs, web: &listener{conns: make(chan net.Conn), done: make(chan struct{})}}
	var err error
	if d.eng, err = pebble.Open(pebble.Options{Dir: "state", FS: on.wrap(fs), Clock: c}); err != nil {
		return nil, err
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if d.state, err = dispatch.Open(d.ctx, d.eng, dispatch.Options{Alive: alive}); err != nil {
		d.cancel()
		return nil, errors.Join(err, d.eng.Close())
	}
	if err := errors.Join(d.state.Check(d.ctx), d.eng.Check()); err != nil {
		fault("the state does not agree with itself after a start: %v", err)
	}
	d.server = server.New(d.state, server.Options{Version: "simulation"})
	d.wg.Go(func() {
		if err := d.state.Tend(d.ctx); err != nil && !d.dead.Load() {
			fault("the daemon failed: %v", err)
		}
	})
	d.wg.Go(func() {
		if err := d.server.ServeEndpoint(d.ctx, d.web); err != nil && !d.dead.Load() {
			fault("the endpoint failed: %v", err)
		}
	})
	return d, nil
}

// A crash says how much of the unsynced writes is kept: 100 percent after the end of
// the process, and any part of them after a power cut.
type crash struct{ kept int }

// kill ends the daemon without a shutdown. It returns a copy of the disk after crash c.
//
// The copy is made after every answer that a client has accepted. A client checks dead
// after it has read, so the answers that it accepts were written before dead was set,
// and the copy is made after that.
func (d *daemon) kill(c crash, rnd *rand.Rand) *vfs.MemFS {
	d.dead.Store(true)
	left := d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.kept, RNG: rnd})
	d.end()
	return left
}

// stop ends the daemon as SIGTERM does.
func (d *daemon) stop() error {
	d.mu.Lock()
	d.cancel() // no client can connect from here on
	d.mu.Unlock()
	d.wg.Wait()
	return errors.Join(d.state.Check(context.Background()), d.eng.Check(), d.eng.Close())
}

// end cuts every connection and waits for the goroutines that still run. They work on a
// state that nothing will read.
func (d *daemon) end() {
	d.mu.Lock()
	for _, nc := range d.conns {
		nc.Close()
	}
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
	_ = d.eng.Close()
}

// pipe opens a connection. Nobody serves its far end yet.
func (d *daemon) pipe(begin func(far net.Conn)) (near, far net.Conn, err error) {
	if d == nil {
		return nil, nil, errNoDaemon
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead.Load() || d.ctx.Err() != nil {
		return nil, nil, errNoDaemon
	}
	near, far = newWire()
	d.conns = append(d.conns, near, far)
	if begin != nil {
		begin(far)
	}
	return &clientConn{near, d}, far, nil
}

func (d *daemon) dialSocket(peer process.Peer) (net.Conn, error) {
	near, _, err := d.pipe(func(far net.Conn) {
		d.wg.Go(func() { d.server.ServeConn(d.ctx, far, peer) })
	})
	return near, err
}

func (d *daemon) dialHTTP() (net.Conn, error) {
	near, far, err := d.pipe(nil)
	if err != nil {
		return nil, err
	}
	select {
	case d.web.conns <- far:
		return near, nil
	case <-d.web.done:
		near.Close()
		return nil, errNoDaemon
	}
}

// A clientConn is a client's end of a connection.
type clientConn struct {
	net.Conn
	daemon *daemon
}

func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.daemon.dead.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// A listener is where HTTP listens.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr { return &net.TCPAddr{} }
