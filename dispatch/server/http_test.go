package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// pipeListener is a network inside a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// A web is a daemon's HTTP endpoint and a client of it.
type web struct {
	*daemon
	client *http.Client
	token  string
}

func newWeb(t *testing.T, opts server.Options) *web {
	t.Helper()
	return newWebOf(t, newDaemon(t, opts))
}

func newWebOf(t *testing.T, d *daemon) *web {
	t.Helper()
	d.token(t, "root")
	w := &web{daemon: d, token: d.token(t, "w")}
	w.listen(t)
	return w
}

func (w *web) listen(t *testing.T) {
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	ctx := w.ctx
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := w.ServeEndpoint(ctx, ln); err != nil {
			t.Errorf("ServeEndpoint: %v", err)
		}
	}()
	transport := &http.Transport{
		DialContext: ln.dial, ExpectContinueTimeout: time.Minute,
		IdleConnTimeout: time.Minute, // the daemon closes an idle connection later, and a request in that instant would fail
	}
	w.client = &http.Client{Transport: transport}
	t.Cleanup(func() { // before newDaemon's
		w.stop()
		<-served
		transport.CloseIdleConnections()
	})
}

func (w *web) request(t *testing.T, method, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("Accept", "application/json, text/event-stream")
	askFirst(r)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	return r
}

// askFirst lets the server refuse a large body before it is sent: who is still sending
// when the connection ends may not read why.
func askFirst(r *http.Request) {
	if r.ContentLength > 256<<10 {
		r.Header.Set("Expect", "100-continue")
	}
}

// do sends a request and returns the answer, its body read.
func (w *web) do(t *testing.T, method, body string, header ...string) (*http.Response, string) {
	t.Helper()
	resp, err := w.client.Do(w.request(t, method, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// open initializes a session and returns the header that names it.
func (w *web) open(t *testing.T) []string {
	t.Helper()
	resp, body := w.do(t, "POST", initialize)
	if resp.StatusCode != 200 || resp.Header.Get("Mcp-Session-Id") == "" {
		t.Fatalf("initialize: %s: %s", resp.Status, body)
	}
	return []string{"Mcp-Session-Id", resp.Header.Get("Mcp-Session-Id")}
}

const (
	echo  = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}`
	block = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"block","arguments":{"wait_secs":50}}}`
	ping  = `{"jsonrpc":"2.0","id":4,"method":"ping"}`
)

// TestSessionsOfOneActorAreSpread, so that no actor makes the others wait by beginning many.
func TestSessionsOfOneActorAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		start := time.Now()
		for range 100 {
			w.open(t)
		}
		spread := time.Since(start)
		if spread == 0 {
			t.Error("a hundred sessions of one actor began at once")
		}
		other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "other")}
		if other.open(t); time.Since(start) != spread {
			t.Errorf("another actor's session began %v later", time.Since(start)-spread)
		}
	})
}

// A client that leaves while its session waits for its time has none. Otherwise it could
// fill the actor's sessions without waiting.
func TestASessionWhoseClientLeftIsNotOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 200, ActorHTTPSessions: 66}})
		for range 65 { // the last without a wait
			w.open(t)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		if resp, err := w.client.Do(w.request(t, "POST", initialize).WithContext(ctx)); err == nil {
			t.Errorf("it did not wait: %s", resp.Status)
		}
		time.Sleep(100 * time.Millisecond)
		w.open(t) // the last that there may be
	})
}

// TestTheAddressOfTheServerIsItsName, and that of another machine is not: a page whose name
// was rebound to this address sends its own name.
func TestTheAddressOfTheServerIsItsName(t *testing.T) {
	guarded := server.GuardHost(nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		local  net.Addr
		host   string
		status int
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, "192.0.2.1:80", 200},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, "192.0.2.1", 200},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, "[::ffff:192.0.2.1]:80", 200},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}, "192.0.2.2:80", 403},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, "[2001:db8::1]:80", 200},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 80}, "[2001:db8::2]:80", 403},
		{&net.UnixAddr{}, "192.0.2.1", 403},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, c.local)))
		if w.Code != c.status {
			t.Errorf("host %s at %v: %d, want %d", c.host, c.local, w.Code, c.status)
		}
	}
}

func TestHTTPChecksWhoAsksAndWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPHosts: []string{"leases.example"}, HTTPSessions: 8, ActorHTTPSessions: 2}})
		w.addBlocker()
		session := w.open(t)
		w2 := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "w2")}
		foreign := w2.open(t)
		big := `{"jsonrpc":"2.0","id":1,"method":"ping","params":"` + strings.Repeat("x", wire.MaxMessage) + `"}`
		for _, c := range []struct {
			method, body string
			header       []string
			status       int
		}{
			{"POST", echo, nil, 200},
			{"POST", echo, []string{"Origin", "http://localhost:6274"}, 200},
			{"POST", echo, []string{"Host", "127.0.0.1:80"}, 200},
			{"POST", echo, []string{"Host", "[::1]"}, 200},
			{"POST", echo, []string{"Host", "leases.example", "Origin", "https://leases.example"}, 200},
			{"POST", echo, []string{"Host", "Leases.Example"}, 200},
			{"POST", echo, []string{"Authorization", "bearer  " + w.token}, 200},
			{"POST", echo, []string{"Mcp-Protocol-Version", "2025-11-25"}, 200},
			{"POST", "\ufeff" + echo + "\r\n", nil, 200},
			{"POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil, 202},
			{"POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202},

			{"POST", echo, []string{"Authorization", ""}, 401},
			{"POST", echo, []string{"Authorization", "Bearer lht_no"}, 401},
			{"POST", initialize, []string{"Authorization", "Basic x"}, 401},
			{"GET", "", []string{"Authorization", ""}, 401},
			{"POST", echo, []string{"Host", "evil.example"}, 403},
			{"POST", echo, []string{"Host", "10.0.0.1"}, 403},
			{"POST", echo, []string{"Origin", "https://evil.example"}, 403},
			{"POST", echo, []string{"Origin", "null"}, 403},
			{"GET", "", []string{"Origin", "https://evil.example"}, 403},
			{"PUT", echo, nil, 405},
			{"POST", echo, []string{"Accept", "text/html"}, 406},
			{"GET", "", []string{"Accept", "application/json"}, 406},
			{"POST", big, nil, 413},
			{"POST", echo, []string{"Content-Type", "text/plain"}, 415},
			{"POST", echo, []string{"Content-Encoding", "gzip"}, 415},
			{"POST", echo, []string{"Content-Encoding", "identity"}, 200},

			{"POST", echo, []string{"Mcp-Session-Id", ""}, 400},
			{"POST", strings.Replace(initialize, `"id":1,`, "", 1), []string{"Mcp-Session-Id", ""}, 400},
			{"POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":5}`, nil, 400},
			{"POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":5}`, nil, 400}, // the first has left no session
			{"POST", `{`, nil, 400},
			{"POST", echo, []string{"Mcp-Protocol-Version", "2026-07-28"}, 400},
			{"POST", echo, []string{"Mcp-Protocol-Version", "1999-01-01"}, 400},
			{"GET", "", []string{"Mcp-Protocol-Version", "1999-01-01"}, 400},
			{"DELETE", "", []string{"Mcp-Session-Id", ""}, 400},
			{"POST", echo, []string{"Mcp-Session-Id", "lhs_no"}, 404},
			{"GET", "", []string{"Mcp-Session-Id", "nonsense"}, 404},
			{"POST", echo, foreign, 404},
			{"DELETE", "", foreign, 404},
		} {
			resp, body := w.do(t, c.method, c.body, append(session[:2:2], c.header...)...)
			if resp.StatusCode != c.status {
				t.Errorf("%s %.60s %v: %s, want %d: %.200s", c.method, c.body, c.header, resp.Status, c.status, body)
			}
			if resp.StatusCode == 403 && !strings.Contains(body, "give the name to leasehold serve with --http-host") {
				t.Errorf("%s without what to do: %s", resp.Status, body)
			}
			if resp.StatusCode == 401 && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s without a challenge", resp.Status)
			}
		}
	})
}

func TestAHeaderThatSaysWhoAsksIsNotSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		for name, value := range map[string]string{"Authorization": "Bearer lht_no", session[0]: session[1], "Leasehold-Session": "a", "Idempotency-Key": "a"} {
			r := w.request(t, "POST", ping, append(session[:2:2], "Leasehold-Session", "a", "Idempotency-Key", "a")...)
			r.Header.Add(name, value)
			resp, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode != 400 || !strings.Contains(string(body), name+" must be one header, and not 2") {
				t.Errorf("%s twice: %s: %s %v", name, resp.Status, body, err)
			}
		}
	})
}

func TestHTTPChunkedBodyIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		r := w.request(t, "POST", "")
		r.Body, r.ContentLength = io.NopCloser(io.LimitReader(spaces{}, wire.MaxMessage+1)), -1
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 413 || !strings.Contains(string(body), "a message is larger than 4 MiB") {
			t.Errorf("%s: %s", resp.Status, body)
		}
	})
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte(" "), len(p))), nil }

// events reads the messages of a stream.
type events struct {
	body    io.ReadCloser
	br      *bufio.Reader
	session string // that initialize has opened
}

func (w *web) startStream(t *testing.T, method, body string, header ...string) *events {
	t.Helper()
	resp, err := w.client.Do(w.request(t, method, body, header...))
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s: %s, %s", method, body, resp.Status, resp.Header.Get("Content-Type"))
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &events{resp.Body, bufio.NewReader(resp.Body), resp.Header.Get("Mcp-Session-Id")}
}

// next returns false at the end of the stream.
func (e *events) next(t *testing.T) (m message, ok bool) {
	t.Helper()
	for {
		line, err := e.br.ReadString('\n')
		if err != nil {
			return m, false
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &m); err != nil {
				t.Fatal(err)
			}
			return m, true
		}
	}
}

func TestHTTPAnswersInTheFormThatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		w.AddTestTool("slow", func(context.Context, *dispatchSession) string {
			time.Sleep(time.Second)
			return "done"
		})
		session := w.open(t)
		slow := strings.Replace(echo, "echo", "slow", 1)

		resp, body := w.do(t, "POST", echo, session...)
		if resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, "echo") {
			t.Errorf("at once: %s: %s", resp.Header.Get("Content-Type"), body)
		}
		resp, body = w.do(t, "POST", slow, session...)
		if resp.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(body, "done") {
			t.Errorf("later: %s: %s", resp.Header.Get("Content-Type"), body)
		}
		resp, body = w.do(t, "POST", slow, append(session, "Accept", "application/json")...)
		if resp.Header.Get("Content-Type") != "application/json" || !strings.Contains(body, "done") {
			t.Errorf("later, as JSON: %s: %s", resp.Header.Get("Content-Type"), body)
		}

		e := w.startStream(t, "POST", block, session...)
		<-b.began
		if resp, body := w.do(t, "POST", block, session...); resp.StatusCode != 200 || !strings.Contains(body, "not answered yet") {
			t.Errorf("a duplicate id: %s: %s", resp.Status, body)
		}
		w.do(t, "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`, session...)
		<-b.ended
		if m, ok := e.next(t); ok {
			t.Errorf("a cancelled call was answered: %+v", m)
		}
	})
}

// A client that accepts only streams reads all its answers on streams, however soon they come.
func TestHTTPAnswersOnAStreamOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		only := []string{"Accept", "text/event-stream"}
		session := append(only, "Mcp-Session-Id", w.startStream(t, "POST", initialize, only...).session)
		w.startStream(t, "POST", block, session...)
		<-b.began
		if m, ok := w.startStream(t, "POST", block, session...).next(t); !ok || m.Error == nil || !strings.Contains(m.Error.Message, "not answered yet") {
			t.Errorf("a duplicate id: %+v", m)
		}
		for range 200 {
			if m, ok := w.startStream(t, "POST", echo, session...).next(t); !ok || m.Error != nil {
				t.Fatalf("a call: %v, %+v", ok, m)
			}
		}
	})
}

// A cancel may overtake its call, which has a connection of its own: then the call has
// no effect. One that comes long after the cancel is another that was given its id.
func TestHTTPCancelThatOvertakesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		acquire := func(w *web, id int, key string) (*http.Response, string) {
			return w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":%q}}}`, id, key), session...)
		}
		for id := range 2 {
			w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), session...)
		}
		if resp, body := acquire(w, 0, "a"); strings.Contains(body, "lease_id") {
			t.Errorf("a call that was cancelled was answered: %s: %s", resp.Status, body)
		}
		if _, body := acquire(w, 0, "c"); !strings.Contains(body, "lease_id") {
			t.Errorf("a second call with the id was cancelled, too: %s", body)
		}
		time.Sleep(time.Minute)
		if _, body := acquire(w, 1, "b"); !strings.Contains(body, "lease_id") {
			t.Errorf("a call was cancelled a minute before it came: %s", body)
		}
		const many = 64 // are remembered
		for id := range many {
			w.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 100+id), session...)
		}
		time.Sleep(time.Minute)
		w.do(t, "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`, session...)
		if _, body := acquire(w, 3, "d"); strings.Contains(body, "lease_id") {
			t.Errorf("a minute after %d cancels of calls that did not come, one is not heeded: %s", many, body)
		}
		other := &web{daemon: w.daemon, client: w.client, token: w.daemon.token(t, "other")}
		session = other.open(t)
		if _, body := acquire(other, 2, "a"); !strings.Contains(body, "lease_id") {
			t.Errorf("what was cancelled holds its lease: %s", body)
		}
	})
}

func TestHTTPDeleteEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		session := w.open(t)
		stream := w.startStream(t, "GET", "", session...)
		over := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, stream.body)
			over <- err
		}()
		time.Sleep(12 * time.Second) // the stream is silent for longer than a write may take
		call := w.startStream(t, "POST", block, session...)
		se := <-b.began
		other := w.startStream(t, "POST", `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"kv_wait","arguments":{"path":"/shared/a","wait_secs":30}}}`, session...)
		start := time.Now()
		if resp, body := w.do(t, "DELETE", "", session...); resp.StatusCode != 204 {
			t.Errorf("DELETE: %s: %s", resp.Status, body)
		}
		<-b.ended
		sessionEnds(t, se)
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		call.next(t)
		if m, _ := other.next(t); !strings.HasPrefix(m.text(), "the session has ended: its client deleted it") {
			t.Errorf("a call that waited: %q", m.text())
		}
		if err := <-over; err != nil {
			t.Errorf("the stream breaks off: %v", err)
		}
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 404 {
			t.Errorf("after DELETE: %s", resp.Status)
		}
	})
}

func TestHTTPClientThatDiesLosesItsSessionAfterTheGrace(t *testing.T) {
	for _, held := range []string{"stream", "call", "both"} {
		t.Run(held, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{})
				b := w.addBlocker()
				session := w.open(t)
				seen := make(chan *dispatchSession, 1)
				w.AddTestTool("whoami", func(_ context.Context, se *dispatchSession) string { seen <- se; return "" })
				w.do(t, "POST", strings.Replace(echo, "echo", "whoami", 1), session...)
				se := <-seen
				var lines []*events
				if held != "call" {
					lines = append(lines, w.startStream(t, "GET", "", session...))
				}
				if held != "stream" {
					lines = append(lines, w.startStream(t, "POST", block, session...))
					<-b.began
				}
				for _, e := range lines {
					go io.Copy(io.Discard, e.body) // who reads nothing is cut off
				}
				time.Sleep(time.Hour) // however long it waits
				if err := se.Context().Err(); err != nil {
					t.Fatalf("it ended early: %v", context.Cause(se.Context()))
				}
				start := time.Now()
				for _, e := range lines {
					e.body.Close()
				}
				if held != "stream" {
					if err := <-b.ended; !strings.Contains(err.Error(), "closed the request") {
						t.Errorf("cause of the call: %v", err)
					}
				}
				if err := sessionEnds(t, se); !strings.Contains(err.Error(), "did not come back") {
					t.Errorf("cause: %v", err)
				}
				if took := time.Since(start); took != 4*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestHTTPClientWithoutStreamsMayThink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		for range 3 {
			time.Sleep(14 * time.Minute)
			if resp, body := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
				t.Fatalf("%s: %s", resp.Status, body)
			}
		}
		time.Sleep(15*time.Minute + time.Second)
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 404 {
			t.Errorf("after the idle limit: %s", resp.Status)
		}
	})
}

func TestHTTPSessionOutlastsTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		session := w.open(t)
		call := w.startStream(t, "POST", block, session...)
		se := <-b.began
		stream := w.startStream(t, "GET", "", session...)
		w.stop()
		if m, ok := call.next(t); !ok || !strings.Contains(string(m.Result.StructuredContent), "UNAVAILABLE") {
			t.Errorf("the waiting call: %+v", m)
		}
		if m, ok := stream.next(t); ok {
			t.Errorf("the stream goes on: %+v", m)
		}
		time.Sleep(time.Hour)
		if err := se.Context().Err(); err != nil {
			t.Fatalf("the session ended: %v", context.Cause(se.Context()))
		}

		w.ctx, w.stop = context.WithCancel(context.Background())
		w.Server = server.New(w.state, server.Options{})
		b = w.addBlocker()
		w.listen(t)
		w.do(t, "POST", echo, session...)
		w.startStream(t, "POST", block, session...)
		if again := <-b.began; again.ID() != se.ID() || !again.Resumed() {
			t.Errorf("another session: %v, was %v", again.ID(), se.ID())
		}

		// It is told of its losses on its new stream.
		stream = w.startStream(t, "GET", "", session...)
		w.do(t, "POST", toolCall(9, "run_lease_acquire", `{"key":"a","ttl_secs":1}`), session...)
		time.AfterFunc(time.Minute, func() { stream.body.Close() })
		if m, ok := stream.next(t); !ok || m.Method != "notifications/message" {
			t.Errorf("the stream brings %v, %+v", ok, m)
		}
	})
}

func TestHTTPEndedActorLosesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		b := w.addBlocker()
		session := w.open(t)
		stream := w.startStream(t, "GET", "", session...)
		w.startStream(t, "POST", block, session...)
		<-b.began
		if err := w.state.EndActor(t.Context(), "r", "w", "enough"); err != nil {
			t.Fatal(err)
		}
		<-b.ended
		if m, ok := stream.next(t); ok {
			t.Errorf("the stream goes on: %+v", m)
		}
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 401 {
			t.Errorf("after the end: %s", resp.Status)
		}
	})
}

// Its session takes no more room, though no request was under way.
func TestHTTPEndedActorLeavesRoomForASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 1}})
		other := w.another(t, w.daemon.token(t, "other"))
		w.open(t)
		if err := w.state.EndActor(t.Context(), "r", "w", "enough"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other.open(t)
	})
}

func TestHTTPStreamsAreBoundedAndShareNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPSessions: 1}})
		session := w.open(t)
		if resp, _ := w.do(t, "POST", initialize); resp.StatusCode != 503 {
			t.Errorf("one session too many: %s", resp.Status)
		}
		for range 8 {
			w.startStream(t, "GET", "", session...)
		}
		if resp, _ := w.do(t, "GET", "", session...); resp.StatusCode != 429 {
			t.Errorf("one stream too many: %s", resp.Status)
		}
	})
}

func TestHTTPListensOnTheLoopbackUnlessTold(t *testing.T) {
	for addr, public := range map[string]bool{"127.0.0.1:0": false, "localhost:0": false, ":0": true, "0.0.0.0:0": true} {
		ln, err := server.ListenHTTP(addr, false)
		if (err != nil) != public {
			t.Errorf("%s: %v", addr, err)
		}
		if err == nil {
			ln.Close()
		}
		if ln, err = server.ListenHTTP(addr, true); err != nil {
			t.Errorf("%s, public: %v", addr, err)
		} else {
			ln.Close()
		}
	}
}
