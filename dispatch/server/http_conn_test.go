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
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// connect opens a connection of its own.
func (w *web) connect(t *testing.T) net.Conn {
	t.Helper()
	nc, err := w.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "localhost:80")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	synctest.Wait()
	return nc
}

// hasEnded reports whether the daemon has closed a connection.
func hasEnded(nc net.Conn) bool {
	_ = nc.SetReadDeadline(time.Now())
	_, err := nc.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// pinged reports what a ping with a token on a connection is answered.
func (w *web) pinged(nc net.Conn) string {
	_ = nc.SetReadDeadline(time.Time{})
	fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", w.token, len(ping), ping)
	resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return err.Error()
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Status
}

// Connections that end without a token, by themselves or since they gave way to newer ones,
// are accepted only so fast. Each counts once.
func TestConnectionsWithoutATokenAreSpread(t *testing.T) {
	const room, all = 2, 20
	for name, end := range map[string]func(net.Conn){
		"their clients leave": func(nc net.Conn) { nc.Close(); synctest.Wait() },
		"they give way":       func(net.Conn) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWeb(t, server.Options{Transport: server.Transport{HTTPStrangers: room}})
			start := time.Now()
			for range all {
				end(w.connect(t))
			}
			// The last connections have not ended, or none comes that would wait for them.
			took := time.Since(start)
			if least, most := (all-3*room-2)*time.Millisecond, (all-2*room)*time.Millisecond; took < least || took > most {
				t.Errorf("%s: %d connections were accepted in %v, want %v to %v", name, all, took, least, most)
			}
		})
	}
}

// A closed connection takes no room, and makes no more than it had.
func TestAClosedConnectionCountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPConns: 3, HTTPStrangers: 2, ActorHTTPConns: 3}})
		oldest := w.connect(t)
		w.connect(t).Close()
		synctest.Wait()
		second := w.connect(t)
		if hasEnded(oldest) {
			t.Error("a connection gave way although there was room")
		}
		for range 5 {
			second = w.connect(t) // the oldest gives way
		}
		var known []net.Conn
		for nc := second; ; nc = w.connect(t) {
			if status := w.pinged(nc); !strings.HasPrefix(status, "4") { // it has no session
				t.Errorf("a connection with a token: %s", status)
			}
			if known = append(known, nc); len(known) == 3 {
				break
			}
		}
		if !hasEnded(w.connect(t)) {
			t.Error("there is one connection too many")
		}
		for _, nc := range known {
			if hasEnded(nc) {
				t.Error("a connection with a token gave way")
			}
		}
		known[0].Close()
		synctest.Wait()
		if hasEnded(w.connect(t)) {
			t.Error("a connection was closed, and there is no room for another")
		}
	})
}

// An actor whose requests are refused waits for itself only, and the daemon does not wait
// for it. Whoever shows no token waits, too, and an actor that is served does not.
func TestRefusedRequestsAreSpreadForEachActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		other := w.another(t, w.daemon.token(t, "w2"))
		session, others := w.open(t), other.open(t)
		refused := func(w *web) (took time.Duration) {
			start := time.Now()
			if resp, _ := w.do(t, "POST", ping, "Authorization", ""); resp.StatusCode != http.StatusUnauthorized {
				t.Fatal(resp.Status)
			}
			return time.Since(start)
		}
		start := time.Now()
		for range 200 {
			refused(w)
		}
		if time.Since(start) == 0 {
			t.Error("an actor was refused 200 times in no time")
		}
		other.do(t, "POST", ping, others...)
		if took := refused(other); took != 0 {
			t.Errorf("another actor is refused once and waits %v", took)
		}
		w.do(t, "POST", ping, session...)
		start = time.Now()
		for range 200 {
			other.do(t, "POST", ping, others...)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("an actor is served 200 times and waits %v", took)
		}
		nobody := w.another(t, "")
		for range 200 {
			r := nobody.request(t, "GET", "")
			r.URL.Path = "/healthz"
			resp, err := nobody.client.Do(r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if time.Since(start) == 0 {
			t.Error("a client without a token is served 200 times in no time")
		}
	})
}

// A reset says that a client has not read the last answer, but not if it has sent another
// request since.
func TestAResetBehindTheNextRequestUndoesNothing(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "w")
	ending, url := d.listenEnding(t)
	session := openOver(t, url, token)
	nc, err := net.Dial("tcp", ending.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(nc)
	send := func(head, body string) *http.Response {
		t.Helper()
		fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\n%s\r\n%s", ending.Addr(), token, session, head, body)
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp
	}
	body := acquireLine(0, "k0")
	send(fmt.Sprintf("Content-Length: %d\r\n", len(body)), body)
	if resp := send("Content-Length: 9\r\nExpect: 100-continue\r\n", ""); resp.StatusCode != http.StatusContinue {
		t.Fatal(resp.Status) // the daemon reads the next request
	}
	if err := nc.(*net.TCPConn).SetLinger(0); err != nil { // so that Close resets it
		t.Fatal(err)
	}
	nc.Close()
	<-ending.ended
	p := d.dialSocket(t, path, "checker")
	p.send("%s", strings.Replace(acquireLine(0, "k0"), `"wait_secs":50`, `"wait_secs":0`, 1))
	if line, err := p.br.ReadString('\n'); err != nil || !strings.Contains(line, "LEASE_HELD") {
		t.Errorf("%s %v", line, err)
	}
}

// leaveUnread sends a request over a connection of its own to the socket, and closes that when
// the answer has come, with the answer unread.
func leaveUnread(t *testing.T, path, token, session, body string) {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s",
		token, session, len(body), body)
	if _, err := nc.Read(make([]byte, 1)); err != nil { // it is answered
		t.Fatal(err)
	}
	nc.Close()
}

// A client on the socket of this machine that closes its connection with an answer unread has
// not had it either. What the answer told is told again.
func TestAnAnswerUnreadOnTheSocketIsUndone(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
	path, url := d.listenSocket(t), d.listenTCP(t)
	root, token := d.token(t, "root"), d.token(t, "canceller")
	roots, session := openOver(t, url, root), openOver(t, url, token)
	leaveUnread(t, path, token, session, acquireLine(0, "k0"))
	expectFree(t, d, path, 1)

	tells := func(token, session, line, what string) bool {
		_, body, err := postOver(t.Context(), url, token, session, line)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(body), what)
	}
	if !tells(token, session, acquireLine(1, "k1"), "lease_id") ||
		!tells(root, roots, toolCall(1, "lease_revoke", `{"scope":"run","key":"k1","reason":"a test"}`), "revoked from canceller") {
		t.Fatal("no lease was lost")
	}
	list := toolCall(2, "lease_list", "{}")
	leaveUnread(t, path, token, session, list)
	for !tells(token, session, list, "LEASE_LOST") { // the end of the connection may not have been seen yet
		time.Sleep(time.Millisecond)
	}
	if tells(token, session, list, "LEASE_LOST") {
		t.Error("the loss is told a third time")
	}
}

// A client that has died with an answer unread loses its session, though the answer was
// written.
func TestAnAnswerUnreadEndsItsSessionAfterTheGrace(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Millisecond}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "w")
	session := openOver(t, d.listenTCP(t), token)
	seen := make(chan *dispatchSession, 1)
	d.AddTestTool("whoami", func(_ context.Context, se *dispatchSession) string { seen <- se; return "it was you" })
	leaveUnread(t, path, token, session, strings.Replace(echo, "echo", "whoami", 1))
	if err := sessionEnds(t, <-seen); !strings.Contains(err.Error(), "did not come back") {
		t.Errorf("cause: %v", err)
	}
}
