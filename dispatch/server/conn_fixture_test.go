package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A daemon is a Server over a state in memory.
type daemon struct {
	*server.Server
	state *dispatch.State
	eng   engine.Engine
	ctx   context.Context // of its transports
	stop  context.CancelFunc
	close func() // ends it, and closes its state
	conns sync.WaitGroup
}

func newDaemon(t *testing.T, opts server.Options) *daemon {
	t.Helper()
	return newDaemonAt(t, clock.Clock{}, opts)
}

// newDaemonAt is newDaemon with a clock of its own.
func newDaemonAt(t *testing.T, clk clock.Clock, opts server.Options) *daemon {
	t.Helper()
	return newDaemonOn(t, vfs.NewMem(), clk, opts)
}

// newDaemonOn is newDaemonAt with a state in fs, where another may have been.
func newDaemonOn(t *testing.T, fs vfs.FS, clk clock.Clock, opts server.Options) *daemon {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: fs, Clock: clk})
	if err != nil {
		t.Fatal(err)
	}
	state, err := dispatch.Open(t.Context(), eng, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Server: server.New(state, opts), state: state, eng: eng}
	tendCtx, stopTend := context.WithCancel(context.Background())
	var tend sync.WaitGroup
	tend.Go(func() {
		if err := state.Tend(tendCtx); err != nil {
			t.Errorf("tend: %v", err)
		}
	})
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.close = sync.OnceFunc(func() {
		d.stop()
		d.conns.Wait()
		stopTend()
		tend.Wait()
		if err := eng.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(d.close)
	return d
}

// token makes an actor of run "r", a worker unless it is called root.
func (d *daemon) token(t *testing.T, name string) string {
	t.Helper()
	role := dispatch.Worker
	if name == "root" {
		role = dispatch.Root
	}
	_, token, err := d.state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: name, Role: role})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// pipe connects without a hello.
func (d *daemon) pipe(t *testing.T) *peer {
	t.Helper()
	near, far := net.Pipe()
	d.conns.Go(func() { d.ServeConn(d.ctx, far, process.Peer{}) })
	t.Cleanup(func() { near.Close() })
	return &peer{t: t, nc: near, br: bufio.NewReader(near)}
}

// dial connects as a worker that joins run "r" by itself.
func (d *daemon) dial(t *testing.T, name string) *peer {
	t.Helper()
	p := d.pipe(t)
	p.greet(server.Hello{Run: "r", Name: name})
	return p
}

// A peer is the other end of a connection.
type peer struct {
	t       *testing.T
	nc      net.Conn
	br      *bufio.Reader
	welcome server.Welcome
}

func (p *peer) greet(h server.Hello) {
	p.t.Helper()
	br, w, err := server.Greet(p.nc, h)
	if err != nil {
		p.t.Fatal(err)
	}
	p.br, p.welcome = br, w
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.nc, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// call sends a tool call without waiting for its answer.
func (p *peer) call(id any, tool, arguments string) {
	p.t.Helper()
	b, _ := json.Marshal(id)
	p.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, b, tool, arguments)
}

// A message is what tests look at in one.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result struct {
		Content           []struct{ Text string }
		IsError           bool
		StructuredContent json.RawMessage
		ProtocolVersion   string
	}
	Error *struct {
		Code    int
		Message string
		Data    json.RawMessage
	}
}

// text is the line of a reply, without the JSON below it.
func (m message) text() string {
	if len(m.Result.Content) == 0 {
		return ""
	}
	line, _, _ := strings.Cut(m.Result.Content[0].Text, "\n")
	return line
}

func (p *peer) receive() message {
	p.t.Helper()
	m, err := p.next()
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

func (p *peer) next() (m message, err error) {
	line, err := p.br.ReadBytes('\n')
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(line, &m); err != nil {
		p.t.Fatalf("%v in %s", err, line)
	}
	return m, nil
}

// expectClosed reads on until the daemon has closed the connection. A bubble whose daemon
// keeps it open would otherwise never end.
func (p *peer) expectClosed() {
	p.t.Helper()
	p.nc.SetReadDeadline(time.Now().Add(24 * time.Hour))
	rest, err := io.ReadAll(p.br)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.t.Errorf("the connection is open after a day: %s", rest)
	case err != nil:
		p.t.Logf("before the end: %s, then %v", rest, err)
	}
}

// blocker is a tool that blocks until its call is cancelled, and tells.
type blocker struct {
	began chan *dispatch.Session
	ended chan error // the call's cause
}

func (d *daemon) addBlocker() blocker {
	b := blocker{make(chan *dispatch.Session, 1000), make(chan error, 1000)}
	d.AddTestTool("block", func(ctx context.Context, se *dispatch.Session) string {
		b.began <- se
		engine.TurnOf(ctx).Pause() // as a call does that waits
		<-ctx.Done()
		b.ended <- context.Cause(ctx)
		return "cancelled"
	})
	d.AddTestTool("echo", func(context.Context, *dispatch.Session) string { return "echo" })
	return b
}

// dispatchSession is short for what test tools are given.
type dispatchSession = dispatch.Session

const waiting = `{"wait_secs":50}`

// sessionEnds waits for a session to end, and returns why.
func sessionEnds(t *testing.T, se *dispatch.Session) error {
	t.Helper()
	select {
	case <-se.Context().Done():
		return context.Cause(se.Context())
	case <-time.After(time.Hour):
		t.Fatal("the session did not end")
		return errors.New("unreachable")
	}
}
