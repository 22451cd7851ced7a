package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// One actor takes its share of sessions and no more; the refusal names the
// bound, and another actor finds room.
func TestOneActorCannotTakeAllHTTPSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 8, ActorHTTPSessions: 3}})
		for range 3 {
			w.open(t)
		}
		resp, body := w.do(t, "POST", initialize)
		if resp.StatusCode != 503 || !strings.Contains(body, "HTTP sessions of one actor, at most 3") {
			t.Errorf("the fourth: %s %s", resp.Status, body)
		}
		other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "w2")}
		session := other.open(t)
		other.do(t, "DELETE", "", session...)
		other.open(t)
	})
}

func TestOneActorCannotTakeAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{Transport: server.Transport{ActorConns: 3}})
		d.token(t, "root")
		hello := server.Hello{Token: d.token(t, "w")}
		var open []*peer
		for range 3 {
			p := d.pipe(t)
			p.greet(hello)
			open = append(open, p)
		}
		_, _, err := server.Greet(d.pipe(t).nc, hello)
		if refused, ok := err.(*server.HelloError); !ok || refused.Code != "LIMIT" || refused.Which != "connections of one actor" || refused.Max != 3 || !strings.Contains(refused.Message, "connections of one actor, at most 3; end some clients first, or give each agent a token of its own (leasehold actor add)") {
			t.Errorf("the fourth: %v", err)
		}
		d.dial(t, "other")
		open[0].nc.Close()
		synctest.Wait()
		d.pipe(t).greet(hello)
	})
}

// A client that reads no answers has nothing done for it beyond a bound: its
// calls wait, and then it is not read from.
func TestAClientThatDoesNotReadIsBoundedInBytes(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{WriteTimeout: 24 * time.Hour}})
	d.AddTestTool("big", func(context.Context, *dispatch.Session) string { return strings.Repeat("x", 1<<20) })
	path := d.listenSocket(t)
	var most int64
	for n := range 8 {
		p := d.dialSocket(t, path, fmt.Sprint("deaf", n))
		for i, err := 0, error(nil); err == nil; i++ {
			p.nc.SetWriteDeadline(time.Now().Add(time.Second))
			_, err = fmt.Fprintf(p.nc, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"big","arguments":{}}}`+"\n", i)
			if i == 10_000 {
				t.Fatalf("after %d calls it is still read from", i)
			}
			most = max(most, server.QueuedBytes(d.Server))
		}
	}
	if most > 64<<20 { // a little more than one client may have queued
		t.Errorf("%d MiB were queued", most>>20)
	}
	well := d.dialSocket(t, path, "well")
	well.call(1, "big", `{}`)
	if m := well.receive(); len(m.text()) != 1<<20 {
		t.Errorf("another client's answer: %.100s", m.text())
	}
}

// A connection that shows no token gives way to newer ones at once. One that shows a token
// counts for its actor until it is closed.
func TestConnectionsOverHTTPAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPConns: 4, HTTPStrangers: 2, ActorHTTPConns: 2}})
		dial := func() net.Conn {
			nc, err := w.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "localhost:80")
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return nc
		}
		ask := func(nc net.Conn) string {
			fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", w.token, len(initialize), initialize)
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				return err.Error()
			}
			body, err := io.ReadAll(resp.Body)
			return fmt.Sprint(resp.StatusCode, " ", string(body), err)
		}
		oldest, one, two := dial(), dial(), dial()
		start := time.Now()
		if _, err := oldest.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(start) > 0 {
			t.Errorf("the oldest connection without a token: %v after %v", err, time.Since(start))
		}
		for _, nc := range []net.Conn{one, two} {
			if answer := ask(nc); !strings.HasPrefix(answer, "200 ") {
				t.Errorf("a client with a token: %s", answer)
			}
		}
		more := dial()
		if answer := ask(more); !strings.Contains(answer, "HTTP connections of one actor, at most 2") {
			t.Errorf("a third connection of an actor: %s", answer)
		}
		more.Close()
		for range 8 {
			one.Close()
			time.Sleep(time.Minute)
			one = dial()
			if answer := ask(one); !strings.HasPrefix(answer, "200 ") {
				t.Fatalf("a connection after another was closed: %s", answer)
			}
		}
		one.Close()
		two.Close()
	})
}

// Connections that show no token give way to newer ones, and leave room for
// those that do.
func TestHalfOpenRequestsLeaveRoomForClients(t *testing.T) {
	const all, room = 400, 128
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPStrangers: room}})
	d.token(t, "root")
	token := d.token(t, "w")
	url := d.listenTCP(t)
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	session := openOver(t, url, token)
	var half [all]net.Conn
	for n := range half {
		nc, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		fmt.Fprint(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
		half[n] = nc
	}
	// The oldest of them are closed without a word.
	for n, nc := range half[:all-room] {
		nc.SetReadDeadline(time.Now().Add(time.Minute))
		if read, err := nc.Read(make([]byte, 1)); read > 0 || err == nil || isTimeout(err) {
			t.Errorf("the half-open connection %d: %d %v", n, read, err)
		}
	}
	resp, body, err := postOver(t.Context(), url, token, session, ping)
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("a client with a token: %v %s", err, body)
	}
	openOver(t, url, token)
}

// However many requests come without a token, or for more than their actor's share, and
// over however few connections, they leave the processors to others. A client that is
// served waits for none of them.
func TestRefusedRequestsAreAnsweredInTheirTime(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		path, method string
		body         string
		header       []string
	}{
		"without a token":      {401, "/mcp", "POST", ping, []string{"Authorization", ""}},
		"one session too many": {503, "/mcp", "POST", initialize, nil},
		"health":               {200, "/healthz", "GET", "", []string{"Authorization", ""}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 8, ActorHTTPSessions: 1}})
			w.open(t)
			const askers, each = 8, 100
			w.client.CloseIdleConnections() // the next ones have shown no token yet
			w.client.Transport.(*http.Transport).MaxIdleConnsPerHost = askers
			start := time.Now()
			var wg sync.WaitGroup
			for range askers {
				wg.Go(func() {
					for range each {
						r := w.request(t, c.method, c.body, c.header...)
						r.URL.Path = c.path
						resp, err := w.client.Do(r)
						if err != nil {
							t.Error(err)
							return
						}
						if resp.StatusCode != c.status {
							t.Errorf("%s: %s", name, resp.Status)
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			w.another(t, w.daemon.token(t, "w2")).open(t)
			if took := time.Since(before); took > 0 {
				t.Errorf("%s: a client that is served waited %v", name, took)
			}
			wg.Wait()
			// Without a pace it is no time. Some answers come before their waits, and the
			// client may close connections that wait.
			if took := time.Since(start); took < askers*each/2*time.Millisecond {
				t.Errorf("%s: %d requests were answered in %v", name, askers*each, took)
			}
		})
	}
}

// another returns a client of the same daemon that has connections of its own.
func (w *web) another(t *testing.T, token string) *web {
	t.Helper()
	connections := w.client.Transport.(*http.Transport).Clone()
	t.Cleanup(connections.CloseIdleConnections)
	return &web{daemon: w.daemon, client: &http.Client{Transport: connections}, token: token}
}

// Requests that are refused, and whose clients have left, make nobody wait: neither
// clients of other actors that are refused once, nor those of their own actor.
func TestAbandonedRequestsMakeNobodyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 8, ActorHTTPSessions: 1}})
		session := w.open(t)
		other := w.another(t, w.daemon.token(t, "w2"))
		others := other.open(t)
		for range 1000 {
			leaver := w.another(t, w.token)
			leaver.do(t, "POST", ping, session...)
			r := leaver.request(t, "GET", "", "Authorization", "")
			r.URL.Path = "/api/v1/actors" // it is answered before the connection waits
			resp, err := leaver.client.Do(r)
			if err != nil || resp.StatusCode != 401 {
				t.Fatal(resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			leaver.client.CloseIdleConnections()
			synctest.Wait()
		}
		for _, c := range []struct {
			*web
			session []string
		}{{w, session}, {other, others}} {
			start := time.Now()
			c.do(t, "POST", ping, "Authorization", "")
			c.do(t, "POST", ping, c.session...)
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Errorf("a client waited for %v", took)
			}
		}
	})
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// A client that sends calls faster than they are served is read no further, and none
// of its calls is refused.
func TestCallsBeyondTheLineAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		goOn := make(chan struct{})
		d.AddTestTool("hold", func(context.Context, *dispatch.Session) string {
			<-goOn
			return "held"
		})
		p := d.dial(t, "hasty")
		const all = 1000
		var sent atomic.Int64
		go func() {
			for i := range all {
				p.call(i, "hold", `{}`)
				sent.Add(1)
			}
		}()
		time.Sleep(time.Second)
		if n := sent.Load(); n > all/2 {
			t.Errorf("%d calls were read, and none is served", n)
		}
		close(goOn)
		for range all {
			if m := p.receive(); m.text() != "held" {
				t.Fatalf("answer: %+v", m)
			}
		}
	})
}

// Calls of one actor take turns, over all its connections; what waits says so
// and takes none.
func TestCallsOfOneActorTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		d.token(t, "root")
		var running atomic.Int64
		goOn := make(chan struct{})
		d.AddTestTool("hold", func(context.Context, *dispatch.Session) string {
			running.Add(1)
			<-goOn
			return "held"
		})
		d.AddTestTool("echo", func(context.Context, *dispatch.Session) string { return "echo" })
		hello := server.Hello{Token: d.token(t, "greedy")}
		var all sync.WaitGroup
		for range 2 {
			p := d.pipe(t)
			p.greet(hello)
			all.Go(func() {
				for i := range 64 {
					p.call(i, "hold", `{}`)
				}
			})
			all.Go(func() {
				for range 64 {
					p.receive()
				}
			})
		}
		time.Sleep(time.Minute) // as many are sent as are read
		if n := running.Load(); n != 4 {
			t.Errorf("%d calls of one actor run at once", n)
		}
		other := d.dial(t, "other")
		other.call(1, "echo", `{}`)
		if m := other.receive(); m.text() != "echo" {
			t.Errorf("another actor's call: %+v", m)
		}
		close(goOn)
		all.Wait()
		if n := running.Load(); n != 128 {
			t.Errorf("%d calls ran", n)
		}
	})
}

// A call that waits unless it says otherwise does not hold up the end of the
// daemon.
func TestTheEndOfTheDaemonWaitsForNoWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		p := d.pipe(t)
		p.greet(server.Hello{Operator: true})
		p.call(1, "operator_watch", `{}`)
		p.receive()
		p.call(2, "operator_watch", `{}`)
		synctest.Wait()
		start := time.Now()
		d.stop()
		d.conns.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}

// One process may be many actors, and still not take all connections.
func TestOneProcessCannotTakeAllConnections(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{ProcessConns: 3}})
	path := d.listenSocket(t)
	for n := range 3 {
		d.dialSocket(t, path, fmt.Sprint("w", n))
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, _, err = server.Greet(nc, server.Hello{Run: "r", Name: "w"})
	if refused, ok := err.(*server.HelloError); !ok || refused.Code != "LIMIT" || !strings.Contains(refused.Message, "connections of one process, at most 3") {
		t.Errorf("the fourth: %v", err)
	}
}

// The bound of all HTTP sessions refuses the next one, of whatever actor.
func TestHTTPSessionsAreBoundedInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 2, ActorHTTPSessions: 2}})
		other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "other")}
		session := w.open(t)
		w.open(t)
		if resp, body := other.do(t, "POST", initialize); resp.StatusCode != 503 || !strings.Contains(body, "HTTP sessions") {
			t.Errorf("the third session: %s %s", resp.Status, body)
		}
		w.do(t, "DELETE", "", session...)
		other.open(t)
	})
}
