package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/registry"
)

// A granted is what tests look at in the answer to an acquire.
type granted struct {
	ID     json.RawMessage
	Result struct {
		IsError           bool
		StructuredContent struct {
			Code    string
			LeaseID string `json:"lease_id"`
		}
	}
}

const cancelledAcquires = 500

func acquireLine(id int, key string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":%q,"ttl_secs":3600,"wait_secs":50}}}`, id, key)
}

// expectFree takes each key for another actor. It waits for as long as a call
// may: a key that somebody holds is never free by then.
func expectFree(t *testing.T, d *daemon, path string, keys int) {
	t.Helper()
	p := d.dialSocket(t, path, "checker")
	for n := range keys {
		p.send("%s", acquireLine(n, fmt.Sprint("k", n)))
		var m granted
		line, err := p.br.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &m)
		}
		if err != nil || m.Result.IsError {
			t.Fatalf("key %d is still held: %v %s", n, err, line)
		}
	}
}

// listenSocket serves a real unix socket.
func (d *daemon) listenSocket(t *testing.T) (path string) {
	t.Helper()
	path = socketPath(t)
	ln, err := server.ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	d.conns.Go(func() {
		if err := d.ServeSocket(d.ctx, ln); err != nil {
			t.Errorf("ServeSocket: %v", err)
		}
	})
	return path
}

func (d *daemon) dialSocket(t *testing.T, path, name string) *peer {
	t.Helper()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	p := &peer{t: t, nc: nc}
	p.greet(server.Hello{Run: "r", Name: name})
	return p
}

// An acquire that is cancelled around its grant leaves nothing held, whatever
// the instant: before the commit, after it, or while its answer is on its way.
// An answer that the client has seen before it cancels is its own to release.
func TestNoCancelledAcquireLeavesItsLeaseHeldOverTheSocket(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := newDaemon(t, server.Options{})
	path := d.listenSocket(t)
	p := d.dialSocket(t, path, "canceller")

	var mu sync.Mutex
	seen := make(map[string]string) // lease_id by request
	gaveUp := make(map[string]bool)
	unseen := 0
	released, caughtUp := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(released)
		for {
			line, err := p.br.ReadBytes('\n')
			if err != nil {
				return
			}
			var m granted
			if err := json.Unmarshal(line, &m); err != nil || m.Result.IsError {
				t.Errorf("answer: %v %s", err, line)
				return
			}
			mu.Lock()
			if id := string(m.ID); !gaveUp[id] {
				seen[id] = m.Result.StructuredContent.LeaseID
			} else {
				unseen++
			}
			if string(m.ID) == "-1" {
				mu.Unlock()
				return
			}
			mu.Unlock()
			if string(m.ID) == "-2" {
				caughtUp <- struct{}{}
			}
		}
	}()
	for n := range cancelledAcquires {
		if n%50 == 49 { // so that a slow daemon has never more calls under way than it takes
			p.send(`{"jsonrpc":"2.0","id":-2,"method":"tools/call","params":{"name":"lease_list","arguments":{}}}`)
			select {
			case <-caughtUp:
			case <-released:
				t.Fatal("the connection ended")
			}
		}
		line := acquireLine(n, fmt.Sprint("k", n))
		if n%2 == 0 { // a call that does not wait keeps its answer elsewhere
			line = strings.Replace(line, `"wait_secs":50`, `"wait_secs":0`, 1)
		}
		p.send("%s", line)
		for spin := rng.IntN(200_000); spin > 0; spin-- { // up to about the time of a call
		}
		mu.Lock()
		_, had := seen[fmt.Sprint(n)]
		gaveUp[fmt.Sprint(n)] = !had
		mu.Unlock()
		if !had {
			p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n)
		}
	}
	p.send(`{"jsonrpc":"2.0","id":-1,"method":"ping"}`)
	<-released
	delete(seen, "-1")
	delete(seen, "-2")
	t.Logf("%d were answered before they were cancelled, %d after", len(seen), unseen)
	for n, lease := range seen {
		p.send(`{"jsonrpc":"2.0","id":"r%s","method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, n, lease)
		p.receive()
	}
	expectFree(t, d, path, cancelledAcquires)
}

// A grant that came by hand-over is undone like any other, when its client cancels
// the call with the answer on its way.
func TestAHandOverWhoseAnswerWasNotSeenIsUndone(t *testing.T) {
	d := newDaemon(t, server.Options{})
	path := d.listenSocket(t)
	holder, waiter := d.dialSocket(t, path, "holder"), d.dialSocket(t, path, "waiter")
	answer := func(p *peer) string {
		line, err := p.br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	var held granted
	holder.send("%s", acquireLine(1, "k0"))
	if err := json.Unmarshal([]byte(answer(holder)), &held); err != nil {
		t.Fatal(err)
	}
	waiter.send("%s", acquireLine(1, "k0"))
	for waiting := false; !waiting; {
		holder.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lease_list","arguments":{}}}`)
		waiting = strings.Contains(answer(holder), `"in_line":1`)
	}
	holder.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, held.Result.StructuredContent.LeaseID)
	answer(holder)
	answer(waiter) // the answer is written; the client behaves as if it had not read it
	waiter.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	expectFree(t, d, path, 1)
}

// The same over HTTP: a client gives a call up by a notification, as MCP has it,
// or by closing its connection with the answer unread, if there is one.
func TestNoCancelledAcquireLeavesItsLeaseHeldOverHTTP(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	// The end of the session would release everything.
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "canceller")
	url := d.listenTCP(t)
	session := openOver(t, url, token)

	var wg sync.WaitGroup
	for worker := range 5 {
		rng := rand.New(rand.NewPCG(seed, uint64(worker)))
		wg.Go(func() {
			for n := worker; n < cancelledAcquires; n += 5 {
				after := time.Duration(rng.IntN(3000)) * time.Microsecond
				if n%2 == 0 {
					hangUp(t, url, token, session, acquireLine(n, fmt.Sprint("k", n)), after)
				} else {
					giveUp(t, url, token, session, n, after)
				}
			}
		})
	}
	wg.Wait()
	expectFree(t, d, path, cancelledAcquires)
}

// A client that closes its connection with an answer unread has not had it,
// however many others its session was given meanwhile.
func TestAnAnswerUnreadBehindManyOthersIsUndone(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "canceller")
	url := d.listenTCP(t)
	session := openOver(t, url, token)
	host := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")
	_, port, _ := net.SplitHostPort(host)
	var unread []net.Conn
	for n, name := range []string{host, "localhost:" + port, "LocalHost:" + port} {
		nc, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		unread = append(unread, nc)
		body := acquireLine(n, fmt.Sprint("k", n))
		fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s",
			name, token, session, len(body), body)
		if _, err := nc.Read(make([]byte, 1)); err != nil { // it is answered
			t.Fatal(err)
		}
	}
	for n := len(unread); n < 100; n++ {
		giveUp(t, url, token, session, n, time.Hour)
	}
	for _, nc := range unread {
		nc.Close()
	}
	expectFree(t, d, path, 100)
}

// A client whose answer cannot be written has not had it, however long that was
// tried.
func TestAnAnswerThatNobodyTakesIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
		session := w.open(t)
		nc, err := w.client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		body := acquireLine(0, "k0")
		var head strings.Builder
		head.WriteString(fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n", w.token, len(body)))
		for i := 0; i < len(session); i += 2 {
			head.WriteString(session[i] + ": " + session[i+1] + "\r\n")
		}
		if _, err := nc.Write([]byte(head.String() + "\r\n" + body)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p := w.daemon.dial(t, "checker")
		p.send("%s", strings.Replace(acquireLine(0, "k0"), `"wait_secs":50`, `"wait_secs":0`, 1))
		if m := p.receive(); m.Result.IsError {
			t.Errorf("the lease is held: %s", m.text())
		}
		if _, answer := w.do(t, "POST", acquireLine(0, "k1"), session...); !strings.Contains(answer, `"lease_id"`) {
			t.Errorf("another call with the same id: %s", answer)
		}
	})
}

// What an answer told that could not be written is told again.
func TestALossInAnAnswerThatNobodyTakesIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
		session := w.open(t)
		const list = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"lease_list"}}`
		w.do(t, "POST", strings.Replace(acquireLine(0, "k"), "3600", "60", 1), session...)
		time.Sleep(2 * time.Minute)
		var text strings.Builder
		if err := w.request(t, "POST", list, append(session, "Accept", "application/json")...).Write(&text); err != nil {
			t.Fatal(err)
		}
		defer w.send(t, text.String()).Close()
		time.Sleep(time.Minute)
		_, answer := w.do(t, "POST", list, append(session, "Accept", "application/json")...)
		if told := lossesIn(t, objectOf(t, answer)); told != 1 {
			t.Errorf("it is told of %d losses: %s", told, answer)
		}
	})
}

// A call is sent again, and answered. That its first request arrives late, on a
// connection that its client has given up, undoes nothing, and takes nothing that the
// client has given back since: over both doors, also when another daemon leads by then,
// and however early the end of the connection is seen.
func TestALateCopyOfACallChangesNothing(t *testing.T) {
	call := func(id int, tool, arguments string, again bool) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"leasehold/call":"mark %d","leasehold/resent":%t}}}`, id, tool, arguments, id, again)
	}
	calls := []struct{ tool, arguments string }{
		{"run_lease_acquire", `{"key":"a","ttl_secs":3600}`},
		{"run_lease_acquire", `{"key":"b","ttl_secs":3600,"wait_secs":50}`},
		{"task_enqueue", `{"queue":"q","payload":"claimed"}`},
		{"task_claim", `{"queues":["q"],"ttl_secs":3600}`},
		{"task_enqueue", `{"queue":"q","payload":"claimed too"}`},
		{"task_claim", `{"queues":["q"],"ttl_secs":3600,"wait_secs":50}`},
		{"task_enqueue", `{"queue":"other","payload":"ready"}`},
	}
	for _, c := range []struct{ web, restart, unread bool }{
		{false, false, false},
		{false, false, true},
		{false, true, false},
		{false, true, true},
		{true, false, false},
		{true, false, true},
		{true, true, false},
		{true, true, true},
	} {
		t.Run(fmt.Sprintf("http=%t,restart=%t,unread=%t", c.web, c.restart, c.unread), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				opts := server.Options{Transport: server.Transport{HTTPGrace: time.Hour}}
				d := newDaemonOn(t, fs, clock.Clock{}, opts)
				var ask func(line string) (answer string)
				var late func(line string) net.Conn
				var back func()
				if c.web {
					w := newWebOf(t, d)
					session := w.open(t)
					ask = func(line string) string {
						_, body := w.do(t, "POST", line, session...)
						return body
					}
					late = func(line string) net.Conn {
						var text strings.Builder
						if err := w.request(t, "POST", line, session...).Write(&text); err != nil {
							t.Fatal(err)
						}
						return w.send(t, text.String())
					}
					back = func() {
						w.daemon = d
						w.listen(t)
					}
				} else {
					d.token(t, "root")
					p := d.pipe(t)
					p.greet(server.Hello{Token: d.token(t, "w")})
					handle := p.welcome.Handle
					resumed := func() *peer {
						p := d.pipe(t)
						p.greet(server.Hello{Handle: handle})
						return p
					}
					ask = func(line string) string {
						p.send("%s", line)
						text, err := p.br.ReadString('\n')
						if err != nil {
							t.Fatal(err)
						}
						return text
					}
					late = func(line string) net.Conn {
						older := resumed()
						older.send("%s", line)
						return older.nc
					}
					back = func() { p = resumed() }
				}
				for id, made := range calls {
					if answer := ask(call(id, made.tool, made.arguments, true)); strings.Contains(answer, `"isError":true`) {
						t.Fatalf("%s: %s", made.tool, answer)
					}
				}
				if c.restart {
					d.close()
					d = newDaemonOn(t, fs, clock.Clock{}, opts)
					back()
				}
				arriveLate := func() {
					for id, made := range calls {
						nc := late(call(id, made.tool, made.arguments, false))
						if c.unread {
							synctest.Wait()
						}
						nc.Close()
						synctest.Wait()
					}
				}
				arriveLate()
				var held []string
				for n, key := range []string{"a", "b"} {
					answer := ask(acquireLine(100+n, key))
					if !strings.Contains(answer, "already yours") {
						t.Errorf("lease %s: %s", key, answer)
					}
					_, id, _ := strings.Cut(answer, `"lease_id":"`)
					id, _, _ = strings.Cut(id, `"`)
					held = append(held, id)
				}
				stats := ask(`{"jsonrpc":"2.0","id":200,"method":"tools/call","params":{"name":"queue_stats","arguments":{}}}`)
				for queue, count := range map[string]string{"q": `"in_progress":2`, "other": `"ready":1`} {
					_, row, _ := strings.Cut(stats, fmt.Sprintf(`{"queue":%q`, queue))
					if row, _, _ = strings.Cut(row, "}"); !strings.Contains(row, count) {
						t.Errorf("queue %s has not %s: %s", queue, count, stats)
					}
				}
				for n, id := range held {
					if answer := ask(call(300+n, "run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, id), false)); !strings.Contains(answer, `"released":true`) {
						t.Errorf("lease %s: %s", id, answer)
					}
				}
				arriveLate()
				if list := ask(call(400, "lease_list", `{"scope":"run"}`, false)); !strings.Contains(list, `"leases":[]`) {
					t.Errorf("after they were released: %s", list)
				}
			})
		})
	}
}

// A client cancels a call, and the daemon is killed before it has undone it; so its shim
// sends the call again, and cancels it once more. Another call of the client was told of
// the same grant, which it keeps.
func TestACancelAfterARestartTakesNothingFromAnotherCall(t *testing.T) {
	for name, arguments := range map[string]string{
		"the lease is its own already": `{"key":"a","ttl_secs":3600}`,
		"they share a request_id":      `{"key":"a","ttl_secs":3600,"request_id":"r"}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewCrashableMem()
				d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
				d.token(t, "root")
				p := d.pipe(t)
				p.greet(server.Hello{Token: d.token(t, "w")})
				handle := p.welcome.Handle
				acquire := func(id int) {
					p.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":%s,"_meta":{"leasehold/call":"mark %d"}}}`, id, arguments, id)
				}
				for id := range 2 {
					acquire(id)
					if m := p.receive(); m.Result.IsError {
						t.Fatal(m.text())
					}
				}
				left := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}) // as after kill -9
				d.close()
				d = newDaemonOn(t, left, clock.Clock{}, server.Options{})
				p = d.pipe(t)
				p.greet(server.Hello{Handle: handle})
				acquire(0)
				p.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
				time.Sleep(time.Second)
				other := d.dial(t, "other")
				other.call(1, "run_lease_acquire", `{"key":"a"}`)
				if m := other.receive(); !m.Result.IsError {
					t.Errorf("somebody else has the lease: %s", m.text())
				}
			})
		})
	}
}

// A call that waited is sent and cancelled in the same way, mostly before it can wait
// again. It must not stay in line, where a free key would be reserved for it.
func TestACancelAfterARestartTakesTheCallOutOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50},` +
			`"_meta":{"leasehold/call":"m","leasehold/resent":%t}}}`
		fs := vfs.NewCrashableMem()
		d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
		d.token(t, "root")
		holder, waiter := d.pipe(t), d.pipe(t)
		holder.greet(server.Hello{Token: d.token(t, "holder")})
		holder.call(1, "run_lease_acquire", `{"key":"a"}`)
		holder.receive()
		inLine := func() string {
			time.Sleep(time.Second)
			holder.call(2, "lease_list", `{}`)
			_, list, _ := strings.Cut(holder.receive().Result.Content[0].Text, `"in_line":`)
			return list
		}
		waiter.greet(server.Hello{Token: d.token(t, "waiter")})
		waiter.send(wait, "1", false)
		if got := inLine(); !strings.HasPrefix(got, "1") {
			t.Fatalf("it does not wait: %s", got)
		}
		left := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}) // as after kill -9
		d.close()
		d = newDaemonOn(t, left, clock.Clock{}, server.Options{})
		handle := holder.welcome.Handle
		holder = d.pipe(t)
		holder.greet(server.Hello{Handle: handle})
		if got := inLine(); !strings.HasPrefix(got, "1") {
			t.Fatalf("it has lost its place: %s", got)
		}
		handle = waiter.welcome.Handle
		waiter = d.pipe(t)
		waiter.greet(server.Hello{Handle: handle})
		waiter.send(wait+"\n"+`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"replay"}}`, "replay", true)
		if got := inLine(); !strings.HasPrefix(got, "0") {
			t.Errorf("in line: %s", got)
		}
	})
}

// A client with a connection for each request is sent the end of the connection
// with the answer. That it closes its own end with the answer unread shows only
// after that.
func TestAnAnswerUnreadBehindTheEndOfItsConnectionIsUndone(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "canceller")
	ending, url := d.listenEnding(t)
	session := openOver(t, url, token)
	const keys = 5
	for n := range keys {
		nc, err := net.Dial("tcp", ending.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := acquireLine(n, fmt.Sprint("k", n))
		fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s",
			ending.Addr(), token, session, len(body), body)
		<-ending.ended
		if n == 0 {
			time.Sleep(100 * time.Millisecond) // it need not close its own end at once
		}
		nc.Close()
	}
	expectFree(t, d, path, keys)
}

// A proxy resets the connections that it is done with, as HAProxy does. That says nothing
// of its client, which keeps what it was granted, and its session.
func TestAResetByAProxyUndoesNothing(t *testing.T) {
	d := newDaemon(t, server.Options{Transport: server.Transport{HTTPGrace: time.Millisecond, HTTPHosts: []string{"leases.example.org"}}})
	path := d.listenSocket(t)
	d.token(t, "root")
	token := d.token(t, "w")
	ending, url := d.listenEnding(t)
	_, port, _ := net.SplitHostPort(ending.Addr().String())
	post := func(host, session, head, body string) *http.Response {
		t.Helper()
		nc, err := net.Dial("tcp", ending.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(nc, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
			host, token, session, head, len(body), body)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		switch {
		case err != nil:
		case strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
			for answers, line := bufio.NewReader(resp.Body), ""; err == nil && !strings.HasPrefix(line, "data: {"); { // its end follows
				line, err = answers.ReadString('\n')
			}
		default:
			_, err = io.ReadAll(resp.Body)
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%+v %v", resp, err)
		}
		if err := nc.(*net.TCPConn).SetLinger(0); err != nil { // so that Close resets it
			t.Fatal(err)
		}
		nc.Close()
		<-ending.ended
		return resp
	}
	hosts := []string{"leases.example.org", "leases.example.org:" + port, "127.0.0.1", "localhost:1", "127.0.0.2:" + port}
	const asJSON = "Accept: application/json"
	session := post(hosts[0], "", asJSON, initialize).Header.Get("Mcp-Session-Id")
	keys := 0
	for _, host := range hosts {
		for _, head := range []string{asJSON, asJSON + "\r\nConnection: close", "Accept: text/event-stream"} {
			post(host, session, head, acquireLine(keys, fmt.Sprint("k", keys)))
			keys++
		}
	}
	if resp, _, err := postOver(t.Context(), url, token, session, ping); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("its session has ended: %+v %v", resp, err)
	}
	p := d.dialSocket(t, path, "checker")
	for n := range keys {
		p.send("%s", strings.Replace(acquireLine(n, fmt.Sprint("k", n)), `"wait_secs":50`, `"wait_secs":0`, 1))
		if line, err := p.br.ReadString('\n'); err != nil || !strings.Contains(line, "LEASE_HELD") {
			t.Errorf("key %d: %s %v", n, line, err)
		}
	}
}

// listenEnding serves like listenTCP, and tells when the server ends its half of a connection.
func (d *daemon) listenEnding(t *testing.T) (ending endingListener, url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ending = endingListener{ln, make(chan struct{}, 100)}
	return ending, d.serveTCP(t, ending)
}

// An endingListener tells when the server ends its half of a connection.
type endingListener struct {
	net.Listener
	ended chan struct{}
}

func (l endingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{nc.(*net.TCPConn), l.ended, sync.Once{}}, nil
}

type endingConn struct {
	*net.TCPConn
	ended chan struct{}
	once  sync.Once
}

func (c *endingConn) CloseWrite() error {
	defer c.once.Do(func() { c.ended <- struct{}{} })
	return c.TCPConn.CloseWrite()
}

func (c *endingConn) Close() error {
	defer c.once.Do(func() { c.ended <- struct{}{} })
	return c.TCPConn.Close()
}

func openOver(t *testing.T, url, token string) (session string) {
	t.Helper()
	resp, _, err := postOver(t.Context(), url, token, "", initialize)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("initialize: %v %v", resp, err)
	}
	return resp.Header.Get("Mcp-Session-Id")
}

func postOver(ctx context.Context, url, token, session, body string) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp, answer, err
}

// giveUp cancels an acquire by a notification, unless it has the answer.
func giveUp(t *testing.T, url, token, session string, id int, after time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), after)
	defer cancel()
	_, answer, err := postOver(ctx, url, token, session, acquireLine(id, fmt.Sprint("k", id)))
	if err != nil {
		cancelled := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
		resp, body, err := postOver(t.Context(), url, token, session, cancelled)
		for t.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded) { // over a connection that ends with the acquire
			resp, body, err = postOver(t.Context(), url, token, session, cancelled)
		}
		if err != nil || resp.StatusCode != 202 {
			t.Errorf("cancelled: %v %v %s", resp, err, body)
		}
		return
	}
	var m granted
	if err := json.Unmarshal(answer, &m); err != nil || m.Result.IsError {
		t.Errorf("acquire %d: %v %s", id, err, answer)
		return
	}
	release := fmt.Sprintf(`{"jsonrpc":"2.0","id":"r%d","method":"tools/call","params":{"name":"run_lease_release","arguments":{"lease_id":%q}}}`, id, m.Result.StructuredContent.LeaseID)
	if _, answer, err := postOver(t.Context(), url, token, session, release); err != nil || !strings.Contains(string(answer), `"released":true`) {
		t.Errorf("release %d: %v %s", id, err, answer)
	}
}

// hangUp sends a request and closes the connection without reading.
func hangUp(t *testing.T, url, token, session, body string, after time.Duration) {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	nc, err := net.Dial("tcp", host)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	fmt.Fprintf(nc, "POST /%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, host, token, session, len(body), body)
	time.Sleep(after)
}

// addTaker adds a tool that takes the lease a. While lasts is true, it does so when its call
// is cancelled.
func (d *daemon) addTaker(t *testing.T) (lasts *bool) {
	lasts = new(bool)
	d.AddTestTool("take", func(ctx context.Context, se *dispatchSession) string {
		if *lasts {
			engine.TurnOf(ctx).Pause() // as a call does that waits
			<-ctx.Done()
		}
		g, err := se.Acquire(context.WithoutCancel(ctx), dispatch.RunScope, registry.Request{Key: "a", TTL: time.Hour})
		if err != nil {
			t.Error(err)
		}
		return g.ID.String()
	})
	return lasts
}

// A call may take a lease after its connection has ended. Its session goes on if it has
// another connection, and must not hold what nobody was told of.
func TestACallThatOutlivesItsConnectionIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		*d.addTaker(t) = true
		ends := d.pipe(t)
		ends.greet(server.Hello{Token: d.token(t, "root")})
		stays := d.pipe(t)
		stays.greet(server.Hello{Handle: ends.welcome.Handle})
		ends.call(1, "take", `{}`)
		synctest.Wait()
		ends.nc.Close()
		time.Sleep(time.Minute)
		other := d.pipe(t)
		other.greet(server.Hello{Token: d.token(t, "other")})
		other.call(1, "run_lease_acquire", `{"key":"a"}`)
		if m := other.receive(); m.Result.IsError {
			t.Errorf("another actor is told %s", m.text())
		}
	})
}

// A call is sent again just when it takes a lease, so that only the copy is answered. Its client
// leaves without reading that, and nobody was told of the lease.
func TestAnUnreadCopyUndoesWhatItWasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{Transport: server.Transport{HTTPGrace: time.Hour}})
		lasts := w.addTaker(t)
		session := w.open(t)
		send := func() net.Conn {
			var text strings.Builder
			call := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"take","arguments":{},"_meta":{"leasehold/call":"mark"}}}`
			if err := w.request(t, "POST", call, session...).Write(&text); err != nil {
				t.Fatal(err)
			}
			nc := w.send(t, text.String())
			synctest.Wait()
			return nc
		}
		*lasts = true
		first := send()
		*lasts = false
		copied := send()
		first.Close()
		other := newProgram(t, w).another("other").open()
		other.want(409, "POST", "/leases", `{"key":"a"}`)
		copied.Close()
		synctest.Wait()
		other.want(201, "POST", "/leases", `{"key":"a"}`)
	})
}
