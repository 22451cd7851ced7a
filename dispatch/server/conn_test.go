package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func TestInitializeCompletesBeforeWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		go io.WriteString(p.nc, initialize+"\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
		if m := p.receive(); string(m.ID) != "1" || m.Result.ProtocolVersion != "2025-06-18" {
			t.Errorf("first answer: %+v", m)
		}
		if m := p.receive(); string(m.ID) != "2" || m.Error != nil {
			t.Errorf("second answer: %+v", m)
		}
	})
}

func TestModernClientsAreToldToInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		p.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		m := p.receive()
		if m.Error == nil || m.Error.Code != -32022 || !strings.Contains(string(m.Error.Data), `"2025-11-25"`) ||
			strings.Contains(strings.Split(string(m.Error.Data), "requested")[0], "2026-07-28") {
			t.Fatalf("answer to server/discover: %+v", m.Error)
		}
		p.send("%s", initialize)
		if m := p.receive(); m.Error != nil {
			t.Errorf("answer to initialize: %+v", m.Error)
		}
	})
}

func TestBlockedCallsStarveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		for i := range server.MaxWaits {
			p.call(i, "block", waiting)
			<-b.began
		}
		start := time.Now()
		p.call("release", "echo", `{}`)
		if m := p.receive(); string(m.ID) != `"release"` || m.text() != "echo" {
			t.Errorf("answer: %+v", m)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		p.call("one more", "block", waiting)
		if m := p.receive(); !m.Result.IsError || !strings.Contains(string(m.Result.StructuredContent), `"LIMIT"`) {
			t.Errorf("one wait too many: %+v", m)
		}
	})
}

func TestCancelledCallEndsWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		p.call("a", "block", waiting)
		<-b.began
		p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)
		if err := <-b.ended; err == nil || err.Error() != "cancelled by the client" {
			t.Errorf("cause: %v", err)
		}
		p.call("b", "echo", `{}`)
		if m := p.receive(); string(m.ID) != `"b"` {
			t.Errorf("the cancelled call was answered: %+v", m)
		}
		synctest.Wait()           // what it did is undone
		p.call("a", "echo", `{}`) // its id is free again
		if m := p.receive(); m.text() != "echo" {
			t.Errorf("answer: %+v", m)
		}
	})
}

func TestDuplicateIDIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		p.call(7, "block", waiting)
		<-b.began
		p.call("7", "echo", `{}`) // another id
		if m := p.receive(); m.text() != "echo" {
			t.Errorf("answer: %+v", m)
		}
		p.call(7, "echo", `{}`)
		if m := p.receive(); m.Error == nil || m.Error.Code != -32600 {
			t.Errorf("answer: %+v", m)
		}
	})
}

func TestIDsComeBackExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		for _, id := range []string{"9007199254740993", `"é"`, "-1", "1.5"} {
			p.send(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id)
			if m := p.receive(); string(m.ID) != id {
				t.Errorf("id %s came back as %s", id, m.ID)
			}
		}
	})
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		for msg, code := range map[string]int{
			`{`:                                      -32700,
			`[]`:                                     -32600,
			`{"jsonrpc":"2.0"}`:                      -32600,
			`{"jsonrpc":"1.0","id":1,"method":"a"}`:  -32600,
			`{"jsonrpc":"2.0","id":{},"method":"a"}`: -32600,
			`{"jsonrpc":"2.0","id":null,"method":1}`: -32600,
			`{"jsonrpc":"2.0","id":1,"method":"a"}`:  -32601,
			`{"jsonrpc":"2.0","id":1,"method":"resources/a"}`: -32601,
		} {
			p.send("%s", msg)
			if m := p.receive(); m.Error == nil || m.Error.Code != code {
				t.Errorf("%s: %+v, want %d", msg, m.Error, code)
			}
		}
	})
}

// A model reads these errors: they name members of its message, and no types of Go.
func TestMalformedParamsAreToldWithoutGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		refused := func(method, params, want string) {
			t.Helper()
			p.send(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
			m := p.receive()
			if m.Error == nil {
				t.Fatalf("%s %s is answered: %+v", method, params, m)
			}
			for _, never := range []string{"Go ", "mcp.", "Params", "Request", "json:", "interface"} {
				if strings.Contains(m.Error.Message, never) {
					t.Errorf("%s %s: %s", method, params, m.Error.Message)
				}
			}
			if !strings.HasPrefix(m.Error.Message, want) {
				t.Errorf("%s %s: %s, want %s", method, params, m.Error.Message, want)
			}
		}
		for _, params := range []string{"1", `"x"`, "[]", "true"} {
			refused("initialize", params, "params of initialize must not be a")
			refused("tools/call", params, "params of tools/call must not be a")
			refused("tools/list", params, "params of tools/list must not be a")
		}
		refused("initialize", `{"protocolVersion":1}`, "params.protocolVersion of initialize must not be a number")
		refused("initialize", `{"protocolVersion":"2025-11-25","capabilities":[]}`, "params.capabilities of initialize must not be an array")
		refused("initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":1}}`, "params.clientInfo.name of initialize must not be a number")
		refused("tools/call", `{"name":{}}`, "params.name of tools/call must not be an object")
		refused("tools/call", `{"name":"echo","_meta":1}`, "params._meta of tools/call must not be a number")
		refused("tools/list", `{"cursor":1}`, "params.cursor of tools/list must not be a number")
		refused("tools/list", `{"cursor":"x"}`, "params.cursor is not one that this server gave")
		refused("logging/setLevel", `{"level":1}`, "params.level of logging/setLevel must not be a number")
		refused("ping", `{"_meta":1}`, "params._meta of ping must not be a number")
	})
}

func TestTooLongMessageIsAnsweredAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		p.call(1, "block", waiting)
		se := <-b.began
		go p.nc.Write([]byte(strings.Repeat("x", wire.MaxMessage+64<<10)))
		if m := p.receive(); m.Error == nil || !strings.Contains(m.Error.Message, "4 MiB") {
			t.Errorf("answer: %+v", m)
		}
		p.expectClosed()
		if err := sessionEnds(t, se); !strings.Contains(err.Error(), "4 MiB") {
			t.Errorf("cause: %v", err)
		}
	})
}

func TestGoneClientEndsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		p := d.dial(t, "w")
		p.call(1, "block", waiting)
		se := <-b.began
		start := time.Now()
		p.nc.Close()
		if err := <-b.ended; err == nil || !strings.Contains(err.Error(), "closed it") {
			t.Errorf("cause of the call: %v", err)
		}
		sessionEnds(t, se)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		if _, err := d.state.Connect(t.Context(), dispatch.Credentials{Handle: se.Handle()}, process.Peer{}); err == nil {
			t.Error("the session can still be resumed")
		}
	})
}

// A client that is killed may leave an answer unread. Its end has the same cause then.
func TestGoneClientHasClosedItsConnectionAlsoWithAnAnswerUnread(t *testing.T) {
	d := newDaemon(t, server.Options{})
	path := d.listenSocket(t)
	began := make(chan *dispatch.Session, 1)
	d.AddTestTool("echo", func(_ context.Context, se *dispatch.Session) string {
		began <- se
		return "echo"
	})
	p := d.dialSocket(t, path, "w")
	p.call(1, "echo", `{}`)
	if _, err := io.ReadFull(p.nc, make([]byte, 1)); err != nil { // the answer is there
		t.Fatal(err)
	}
	p.nc.Close()
	if err := sessionEnds(t, <-began); err.Error() != "its connection ended: the client closed it" {
		t.Errorf("cause: %v", err)
	}
}

func TestFrozenPeerIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{Transport: server.Transport{WriteTimeout: 3 * time.Second}})
		b := d.addBlocker()
		p := d.dial(t, "w")
		p.call(1, "block", waiting)
		se := <-b.began
		start := time.Now()
		p.call(2, "echo", `{}`) // and never read
		if err := sessionEnds(t, se); !strings.Contains(err.Error(), "reads no answers") {
			t.Errorf("cause: %v", err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("it took %v", took)
		}
		<-b.ended
	})
}

func TestShutdownEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		finish := make(chan struct{})
		d.AddTestTool("slow", func(context.Context, *dispatch.Session) string {
			<-finish
			return "done"
		})
		p := d.dial(t, "w")
		p.call(1, "block", waiting)
		se := <-b.began
		p.call(2, "slow", `{}`)
		synctest.Wait()
		d.stop()
		<-b.ended // what waits ends at once
		time.AfterFunc(time.Second, func() { close(finish) })
		if m := p.receive(); string(m.ID) != "2" || m.text() != "done" {
			t.Errorf("the short call: %+v", m)
		}
		p.expectClosed()
		d.conns.Wait()
		if err := se.Context().Err(); err != nil {
			t.Errorf("the session ended: %v", context.Cause(se.Context()))
		}
	})
}

func TestEndedActorIsToldAndCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		d.token(t, "root")
		token := d.token(t, "w")
		p := d.pipe(t)
		p.greet(server.Hello{Token: token})
		p.call(1, "block", waiting)
		<-b.began
		if err := d.state.EndActor(t.Context(), "r", "w", "enough"); err != nil {
			t.Fatal(err)
		}
		if err := <-b.ended; !strings.Contains(err.Error(), "enough") {
			t.Errorf("cause: %v", err)
		}
		if m := p.receive(); string(m.ID) != "1" {
			t.Errorf("answer: %+v", m)
		}
		p.expectClosed()
	})
}

const acquire = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k","ttl_secs":1}}}`

// expectLoss checks the notice of a lost lease.
func expectLoss(t *testing.T, m message) {
	t.Helper()
	var params struct {
		Level string
		Data  struct{ Code, Key, Scope, Reason string }
	}
	json.Unmarshal(m.Params, &params)
	if m.Method != "notifications/message" || params.Level != "warning" ||
		params.Data.Code != "LEASE_LOST" || params.Data.Key != "k" || params.Data.Scope != "run" || params.Data.Reason == "" {
		t.Errorf("notice: %s %s", m.Method, m.Params)
	}
}

func TestLossIsToldUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		p.send(initialize)
		p.receive()
		p.send(acquire)
		if m := p.receive(); m.Result.IsError {
			t.Fatalf("acquire: %+v", m)
		}
		expectLoss(t, p.receive())
	})
}

// A claim is no lease that could be acquired again, and nobody has its id.
func TestTheLossOfAClaimIsToldAsThatOfAClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.dial(t, "w")
		p.send(initialize)
		p.receive()
		for _, call := range []string{`"task_enqueue","arguments":{"queue":"q","payload":1}`, `"task_claim","arguments":{"queues":["q"],"ttl_secs":1}`} {
			p.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":` + call + `}}`)
			if m := p.receive(); m.Result.IsError {
				t.Fatalf("%s: %+v", call, m)
			}
		}
		m := p.receive()
		var params struct{ Data map[string]any }
		if err := json.Unmarshal(m.Params, &params); err != nil {
			t.Fatal(err)
		}
		said := params.Data
		want := fmt.Sprintf("you lost the claim on task %q (expired); drop what you did and claim another task", said["key"])
		if said["code"] != "LEASE_LOST" || said["scope"] != "queue" || said["message"] != want || said["lease_id"] != nil {
			t.Errorf("notice: %s", m.Params)
		}
	})
}

func TestLossIsToldOnAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		stream := w.startStream(t, "GET", "", session...)
		if _, body := w.do(t, "POST", acquire, session...); strings.Contains(body, "isError") {
			t.Fatalf("acquire: %s", body)
		}
		m, _ := stream.next(t)
		expectLoss(t, m)
	})
}

// A slowEnd is a context whose end reaches what depends on it step by step, as that of
// a context with many children does.
type slowEnd struct {
	context.Context
	done chan struct{}

	mu    sync.Mutex
	err   error
	steps []func()
}

func (c *slowEnd) Done() <-chan struct{} { return c.done }

func (c *slowEnd) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *slowEnd) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.steps)
	c.steps = append(c.steps, f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := c.steps[n] != nil
		c.steps[n] = nil
		return was
	}
}

// end ends the context for whoever asks it, and then for one after the other. Everybody
// does what there is to do meanwhile.
func (c *slowEnd) end() {
	c.mu.Lock()
	c.err = context.Canceled
	close(c.done)
	c.mu.Unlock()
	for n := range c.steps {
		c.mu.Lock()
		step := c.steps[n]
		c.steps[n] = nil
		c.mu.Unlock()
		if step != nil {
			step()
			synctest.Wait()
		}
	}
}

// A daemon that stops ends no session, in whatever order its connections learn of it.
func TestTheEndOfTheDaemonEndsNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		d.token(t, "root")
		token := d.token(t, "w")
		ctx := &slowEnd{Context: context.Background(), done: make(chan struct{})}
		near, far := net.Pipe()
		d.conns.Go(func() { d.ServeConn(ctx, far, process.Peer{}) })
		t.Cleanup(func() { near.Close() })
		p := &peer{t: t, nc: near, br: bufio.NewReader(near)}
		p.greet(server.Hello{Token: token})
		p.call(1, "run_lease_acquire", `{"key":"x"}`)
		p.receive()
		synctest.Wait()
		ctx.end()
		p.expectClosed()

		back := d.pipe(t)
		back.greet(server.Hello{Handle: p.welcome.Handle, Token: token})
		back.call(2, "run_lease_acquire", `{"key":"x"}`)
		if text := back.receive().text(); !back.welcome.Resumed || !strings.Contains(text, "already yours") {
			t.Errorf("the client is back, resumed: %v; %s", back.welcome.Resumed, text)
		}
	})
}
