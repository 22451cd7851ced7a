package client_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/client"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A house is a daemon in a bubble, with a network of its own.
type house struct {
	t     *testing.T
	disk  vfs.FS
	state *dispatch.State
	end   func() error     // of the daemon, as it ends when it is stopped
	doors map[string]*door // by host and port
	mu    sync.Mutex
}

func inHouse(t *testing.T, story func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, disk: vfs.NewMem(), doors: make(map[string]*door)}
		h.begin()
		defer func() { // or what a failure leaves would end the other tests too
			if err := h.end(); err != nil {
				t.Error(err)
			}
		}()
		if _, _, err := h.state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "root", Role: dispatch.Root}); err != nil {
			t.Fatal(err)
		}
		h.open("localhost:80")
		story(t, h)
	})
}

// begin starts the daemon on what its disk has.
func (h *house) begin() {
	h.t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: h.disk})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	state, err := dispatch.Open(ctx, eng, dispatch.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	tended := make(chan error, 1)
	go func() { tended <- state.Tend(ctx) }()
	h.state = state
	h.end = func() error {
		for _, d := range h.doors {
			d.shut()
		}
		stop()
		return errors.Join(<-tended, eng.Check(), eng.Close())
	}
}

// A door is where the daemon listens.
type door struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	stop  context.CancelFunc
	ended chan error
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case nc := <-d.conns:
		return nc, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error   { d.once.Do(func() { close(d.done) }); return nil }
func (d *door) Addr() net.Addr { return &net.TCPAddr{} }

// open serves the state at an address.
func (h *house) open(addr string) *door {
	d := &door{conns: make(chan net.Conn), done: make(chan struct{}), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() { d.ended <- server.New(h.state, server.Options{}).ServeEndpoint(ctx, d) }()
	h.mu.Lock()
	h.doors[addr] = d
	h.mu.Unlock()
	return d
}

// refuse has a proxy at an address whose server does not answer.
func (h *house) refuse(addr string) {
	h.replace(addr, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
}

// replace has another server at an address.
func (h *house) replace(addr string, answer http.HandlerFunc) {
	h.doors[addr].shut()
	d := &door{conns: make(chan net.Conn), done: make(chan struct{}), ended: make(chan error, 1)}
	proxy := &http.Server{Handler: answer}
	d.stop = func() { proxy.Close() }
	go func() { d.ended <- proxy.Serve(d) }()
	h.mu.Lock()
	h.doors[addr] = d
	h.mu.Unlock()
}

// shut ends the daemon that listens there, and leaves sessions as they are.
func (d *door) shut() {
	d.stop()
	<-d.ended
	d.ended <- nil
}

// A machine is where a client runs: its clock, and its cable.
type machine struct {
	h     *house
	slept atomic.Int64                      // by how much its clock is ahead
	late  func(answer []byte) time.Duration // how late what it is answered comes; nil: at once; negative: never
	reads atomic.Int64                      // of its clock, since onRead
	at    atomic.Int64                      // the read at which something happens
	then  func()

	mu      sync.Mutex
	conns   []*cable
	pulled  chan struct{} // closed: the cable is in
	from    string        // the address that it was pulled from; "": from all
	request map[string]int
}

func (h *house) machine() *machine {
	m := &machine{h: h, pulled: make(chan struct{}), request: make(map[string]int)}
	close(m.pulled)
	return m
}

func (m *machine) clock() clock.Clock {
	c := clock.Go()
	running := c.Running
	c.Running = func() time.Duration {
		if at := m.at.Load(); at > 0 && m.reads.Add(1) == at {
			m.then()
		}
		return running() + time.Duration(m.slept.Load())
	}
	c.Sleeps = true
	return c
}

// onRead has something happen when the clock is read for the nth time from now.
func (m *machine) onRead(n int64, then func()) {
	m.then = then
	m.at.Store(n)
}

// pull lets nothing through any more, in either direction, until plug; nobody notices by
// anything but silence.
func (m *machine) pull() { m.pullFrom("") }

// pullFrom is pull for one address.
func (m *machine) pullFrom(addr string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pulled, m.from = make(chan struct{}), addr
}

func (m *machine) plug() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.pulled)
}

// cut breaks all connections.
func (m *machine) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		c.Close()
	}
	m.conns = nil
}

// answers says from now on how late an answer comes.
func (m *machine) answers(late func(answer []byte) time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = late
}

func (m *machine) requests(of string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.request[of]
}

func (m *machine) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if err := m.passes(addr, ctx.Done()); err != nil {
		return nil, err
	}
	m.h.mu.Lock()
	d := m.h.doors[addr]
	m.h.mu.Unlock()
	if d == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	near, far := net.Pipe()
	select {
	case d.conns <- far:
	case <-d.done:
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &cable{Conn: near, m: m, addr: addr, closed: make(chan struct{})}
	m.mu.Lock()
	m.conns = append(m.conns, c)
	m.mu.Unlock()
	return c, nil
}

// passes waits until the cable to an address is in.
func (m *machine) passes(addr string, over <-chan struct{}) error {
	m.mu.Lock()
	in, from := m.pulled, m.from
	m.mu.Unlock()
	if from != "" && from != addr {
		return nil
	}
	select {
	case <-in:
		return nil
	case <-over:
		return net.ErrClosed
	}
}

// A cable is a connection of a machine.
type cable struct {
	net.Conn
	m      *machine
	addr   string
	once   sync.Once
	closed chan struct{}
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.mu.Lock()
	howLate := c.m.late
	c.m.mu.Unlock()
	if howLate != nil {
		late := howLate(p[:n])
		if late < 0 { // the connection breaks
			c.Close()
			return 0, net.ErrClosed
		}
		select {
		case <-time.After(late):
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	if gone := c.m.passes(c.addr, c.closed); gone != nil {
		return 0, gone
	}
	return n, err
}

func (c *cable) Write(p []byte) (int, error) {
	if gone := c.m.passes(c.addr, c.closed); gone != nil {
		return 0, gone
	}
	if line, _, ok := bytes.Cut(p, []byte(" HTTP/1.1\r\n")); ok {
		c.m.mu.Lock()
		c.m.request[string(line)]++
		c.m.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *cable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// open opens a client on the machine, of an actor of its own.
func (m *machine) open(name string, servers ...string) *client.Client {
	m.h.t.Helper()
	_, token, err := m.h.state.AddActor(m.h.t.Context(), dispatch.NewActor{Run: "r", Name: name, Role: dispatch.Worker})
	if err != nil {
		m.h.t.Fatal(err)
	}
	if len(servers) == 0 {
		servers = []string{"http://localhost"}
	}
	c, err := client.OpenAt(m.h.t.Context(), client.Options{Servers: servers, Token: token}, m.clock(), m.dial)
	if err != nil {
		m.h.t.Fatal(err)
	}
	m.h.t.Cleanup(func() { c.Close() })
	return c
}

func (h *house) client(name string) *client.Client { return h.machine().open(name) }
