package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/leasehold/leasehold/engine/pebble"
)

const clusterSecret = "a secret that is long enough for this"

// A hub is a server that has a state, as others reach it.
type hub struct {
	*daemon
	ln  *pipeListener
	tls *tls.Config
}

func newHub(t *testing.T, opts server.Options) *hub {
	t.Helper()
	t.Cleanup(partings)
	h := &hub{daemon: newDaemon(t, opts), ln: &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}}
	h.token(t, "root")
	var err error
	if h.tls, err = server.ClusterTLS([]byte(clusterSecret)); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx := h.ctx
	go func() { served <- h.ServePassages(ctx, tls.NewListener(h.ln, h.tls)) }()
	t.Cleanup(func() {
		h.stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return h
}

// A frontDoor is a server without a state, which passes its clients on to the hub.
type frontDoor struct {
	*web
	over context.CancelFunc // another has the state

	mu  sync.Mutex
	way []net.Conn // to the hub
}

func (h *hub) door(t *testing.T, opts server.Options) *frontDoor {
	t.Helper()
	over, end := context.WithCancel(context.Background())
	d := &frontDoor{over: end}
	way := &server.Way{Over: over, Dial: func(ctx context.Context) (net.Conn, error) {
		nc, err := h.ln.dial(ctx, "", "")
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		d.way = append(d.way, nc)
		d.mu.Unlock()
		secure := tls.Client(nc, h.tls)
		return secure, secure.HandshakeContext(ctx)
	}}
	opts.Elsewhere = func(int) (*server.Way, <-chan struct{}) { return way, nil }
	front := &daemon{Server: server.New(nil, opts), state: h.state}
	front.ctx, front.stop = context.WithCancel(context.Background())
	d.web = &web{daemon: front, token: h.token(t, fmt.Sprintf("w%p", d))}
	d.listen(t)
	t.Cleanup(func() {
		front.stop()
		d.die()
		front.conns.Wait()
	})
	return d
}

// behind returns a door to a server that passes its clients on to the hub.
func (h *hub) behind(t *testing.T, former *frontDoor) *frontDoor {
	t.Helper()
	ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	front := former.daemon
	front.conns.Go(func() {
		if err := front.ServePassages(front.ctx, tls.NewListener(ln, h.tls)); err != nil {
			t.Error(err)
		}
	})
	return (&hub{daemon: h.daemon, ln: ln, tls: h.tls}).door(t, server.Options{})
}

// die ends all that the hub hears of the door, as kill -9 does.
func (d *frontDoor) die() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, nc := range d.way {
		nc.Close()
	}
}

// leaseID is the argument with the lease that was granted.
func leaseID(m message) string {
	var granted struct {
		ID string `json:"lease_id"`
	}
	_ = json.Unmarshal(m.Result.StructuredContent, &granted)
	return fmt.Sprintf(`{"lease_id":%q}`, granted.ID)
}

// A server that cannot be reached may be there, and log each attempt.
func TestAServerThatCannotBeReachedIsTriedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		way := &server.Way{Over: context.Background(), Dial: func(context.Context) (net.Conn, error) {
			tried++
			return nil, errors.New("another secret")
		}}
		opts := server.Options{Elsewhere: func(int) (*server.Way, <-chan struct{}) { return way, nil }}
		d := &daemon{Server: server.New(nil, opts)}
		d.ctx, d.stop = context.WithCancel(context.Background())
		defer d.stop()
		_, _, err := server.Greet(d.pipe(t).nc, server.Hello{Operator: true})
		if err == nil || !strings.Contains(err.Error(), "cannot be reached; try again: another secret") {
			t.Error(err)
		}
		if tried > 20 {
			t.Errorf("it was tried %d times", tried)
		}
	})
}

// A client that has waited for a leader, and is then passed on to one whose database is away,
// is told so before it gives up, as clients do after 10 s.
func TestAClientThatWaitedBeforeItWasPassedOnIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secured, err := server.ClusterTLS([]byte(clusterSecret))
		if err != nil {
			t.Fatal(err)
		}
		ln := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
		leader := server.New(nil, server.Options{
			Elsewhere: func(int) (*server.Way, <-chan struct{}) { return nil, nil },
			Trouble:   func() string { return "the reason" },
		})
		moved := make(chan struct{})
		way := &server.Way{Over: context.Background(), Dial: func(ctx context.Context) (net.Conn, error) {
			nc, err := ln.dial(ctx, "", "")
			return tls.Client(nc, secured), err
		}}
		front := &daemon{Server: server.New(nil, server.Options{Elsewhere: func(int) (*server.Way, <-chan struct{}) {
			select {
			case <-moved:
				return way, nil
			default:
				return nil, moved
			}
		}})}
		front.ctx, front.stop = context.WithCancel(context.Background())
		front.conns.Go(func() {
			if err := leader.ServePassages(front.ctx, tls.NewListener(ln, secured)); err != nil {
				t.Error(err)
			}
		})
		time.AfterFunc(5*time.Second, func() { close(moved) })
		p := front.pipe(t)
		if err := p.nc.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := server.Greet(p.nc, server.Hello{Operator: true}); err == nil || !strings.Contains(err.Error(), ": the reason; try again") {
			t.Errorf("it was told: %v", err)
		}
		front.stop()
		p.nc.Close()
		front.conns.Wait()
	})
}

// A load balancer sends clients to a server that passes them on, too.
func TestReadyIsWhoeverServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := func(w *web) int {
			resp, err := w.client.Get("http://localhost/readyz")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		if status := ready(newHub(t, server.Options{}).door(t, server.Options{}).web); status != 200 {
			t.Errorf("with a leader to pass clients on to: %d", status)
		}
		lost := &web{daemon: &daemon{Server: server.New(nil, server.Options{
			Elsewhere: func(int) (*server.Way, <-chan struct{}) { return nil, nil },
		})}}
		lost.ctx, lost.stop = context.WithCancel(context.Background())
		lost.listen(t)
		if status := ready(lost); status != 503 {
			t.Errorf("without one: %d", status)
		}
	})
}

// A daemon that cannot answer, because it may have lost the lead, says soon that it is
// not ready; and so does one that has lost what says who leads, whoever it knew.
func TestNotReadyIsAnsweredSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, state := openHeld(t)
		reached := true
		w := &web{daemon: &daemon{Server: server.New(state, server.Options{
			Elsewhere: func(int) (*server.Way, <-chan struct{}) { return &server.Way{}, nil },
			Reached:   func() bool { return reached },
			Trouble:   func() string { return "the reason" },
		})}}
		w.ctx, w.stop = context.WithCancel(context.Background())
		w.listen(t)
		ready := func(want int, text string) {
			t.Helper()
			began := time.Now()
			resp, err := w.client.Get("http://localhost/readyz")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			said, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != want || !strings.Contains(string(said), text) || time.Since(began) > time.Second {
				t.Errorf("after %v: %s: %s", time.Since(began), resp.Status, said)
			}
		}
		ready(200, "ok")
		held.held = make(chan struct{})
		ready(503, "not within 1s: the reason")
		close(held.held)
		ready(200, "ok")
		reached = false
		ready(503, "lost its database, which says who leads: the reason")
	})
}

// openHeld opens a state whose engine is not held yet.
func openHeld(t *testing.T) (held *heldEngine, state *dispatch.State) {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	held = &heldEngine{Engine: eng, held: make(chan struct{})}
	close(held.held)
	if state, err = dispatch.Open(t.Context(), held, dispatch.Options{}); err != nil {
		t.Fatal(err)
	}
	return held, state
}

// A heldEngine answers once it is let.
type heldEngine struct {
	engine.Engine
	held chan struct{}
}

func (e *heldEngine) Update(ctx context.Context, fn func(engine.Tx) error) error {
	<-e.held
	return e.Engine.Update(ctx, fn)
}

func (e *heldEngine) View(ctx context.Context, fn func(engine.Tx) error) error {
	<-e.held
	return e.Engine.View(ctx, fn)
}

// Over HTTP another server is as the one that has the state, and by its own names.
func TestHTTPThroughAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, server.Options{})
		door := hub.door(t, server.Options{Transport: server.Transport{HTTPHosts: []string{"leases.example.org"}}})
		p := newProgram(t, door.web).open()
		lease := p.want(201, "POST", "/leases", `{"key":"a"}`)
		newProgram(t, hub.door(t, server.Options{}).web).open().want(409, "POST", "/leases", `{"key":"a"}`)
		p.want(200, "DELETE", "/leases/"+lease.text("lease_id"), "")

		session := door.open(t)
		for host, want := range map[string]int{"leases.example.org": 200, "localhost": 200, "evil.example.org": 403} {
			if resp, body := door.do(t, "POST", ping, append(session, "Host", host)...); resp.StatusCode != want {
				t.Errorf("host %s: %s: %s", host, resp.Status, body)
			}
			if resp, body := door.do(t, "POST", ping, append(session, "Origin", "https://"+host)...); resp.StatusCode != want {
				t.Errorf("origin %s: %s: %s", host, resp.Status, body)
			}
		}
		if resp, _ := door.do(t, "POST", strings.Repeat(" ", 5<<20), session...); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a message that is too large: %s", resp.Status)
		}
	})
}

// A client that goes from another server is gone at once: what it waits for is the
// next one's, and its session ends after the grace as it would at home.
func TestHTTPClientThatGoesFromAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, server.Options{})
		door := hub.door(t, server.Options{})
		one := newProgram(t, door.web).open()
		two, three := one.another("two").open(), one.another("three").open()
		lease := one.want(201, "POST", "/leases", `{"key":"a"}`)
		held := two.want(201, "POST", "/leases", `{"key":"b"}`)
		if held.text("lease_id") == "" {
			t.Fatal(held.body)
		}

		ctx, leave := context.WithCancel(t.Context())
		var gone sync.WaitGroup
		gone.Go(func() {
			if resp, err := two.client.Do(two.request(ctx, "POST", "/leases", `{"key":"a","wait_secs":50}`)); err == nil {
				resp.Body.Close()
				t.Errorf("answered %s", resp.Status)
			}
		})
		synctest.Wait()
		leave()
		gone.Wait()
		time.Sleep(time.Second) // what it closed has been seen
		one.want(200, "DELETE", "/leases/"+lease.text("lease_id"), "")
		three.want(201, "POST", "/leases", `{"key":"a"}`)
		three.want(409, "POST", "/leases", `{"key":"b"}`)
		time.Sleep(5 * time.Second)
		three.want(201, "POST", "/leases", `{"key":"b"}`)
	})
}

// What a client has asked when another server comes to lead its partition is answered, by
// the one that led or, if that led no more when it was asked, by the next.
func TestAPartitionThatMovesLeavesNoRequestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, server.Options{})
		began, finish := make(chan struct{}), make(chan struct{})
		hub.AddTestTool("work", func(context.Context, *dispatch.Session) string {
			began <- struct{}{}
			<-finish
			return "done"
		})
		former := hub.door(t, server.Options{}) // it led, and passes its clients on now
		for name, door := range map[string]*frontDoor{"led": hub.door(t, server.Options{}), "led no more": hub.behind(t, former)} {
			session := door.open(t)
			answered := make(chan string)
			go func() {
				resp, err := door.client.Do(door.request(t, "POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"work"}}`, session...))
				if err != nil {
					answered <- err.Error()
					return
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				answered <- fmt.Sprint(resp.Status, string(body), err)
			}()
			<-began
			door.over()
			time.Sleep(time.Millisecond)
			finish <- struct{}{}
			if got := <-answered; !strings.Contains(got, "done") {
				t.Errorf("the server that was asked %s: %s", name, got)
			}
		}
	})
}

// When the server through which they came is lost, clients come back through another,
// to their sessions and to their places in line. Whoever does not is gone after the
// grace.
func TestALostServerLosesNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, server.Options{})
		lost, other := hub.door(t, server.Options{}), hub.door(t, server.Options{})
		holder := hub.dial(t, "holder")
		holder.call(1, "run_lease_acquire", `{"key":"a"}`)
		id := leaseID(holder.receive())
		wait := func(p *peer, again bool) {
			p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50},"_meta":{"leasehold/call":"m","leasehold/resent":%v}}}`, again)
			synctest.Wait()
		}
		overSocket := lost.pipe(t)
		overSocket.greet(server.Hello{Token: hub.token(t, "first")})
		wait(overSocket, false)
		session := lost.open(t)
		overHTTP := make(chan error, 1)
		const waiting = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50},"_meta":{"leasehold/call":"m","leasehold/resent":%v}}}`
		go func() {
			resp, err := lost.client.Do(lost.request(t, "POST", fmt.Sprintf(waiting, false), session...))
			if err == nil {
				_, err = bufio.NewReader(resp.Body).ReadString('}') // it is a stream, which breaks off
				resp.Body.Close()
			}
			overHTTP <- err
		}()
		time.Sleep(time.Second)
		gone := lost.pipe(t) // and does not come back
		gone.greet(server.Hello{Token: hub.token(t, "gone")})
		gone.call(1, "run_lease_acquire", `{"key":"b"}`)
		gone.receive()
		last := hub.dial(t, "last")
		wait(last, false)

		lost.die()
		overSocket.expectClosed()
		if err := <-overHTTP; err == nil {
			t.Error("a call was answered whose server is lost")
		}
		back := other.pipe(t)
		back.greet(server.Hello{Handle: overSocket.welcome.Handle})
		if !back.welcome.Resumed {
			t.Error("the session had ended")
		}
		wait(back, true)
		answered := make(chan string, 1)
		other.token = lost.token
		go func() {
			_, body := other.do(t, "POST", fmt.Sprintf(waiting, true), session...)
			answered <- body
		}()
		time.Sleep(time.Second)

		holder.call(2, "run_lease_release", id)
		m := back.receive()
		if m.Result.IsError {
			t.Fatalf("the first in line: %s", m.text())
		}
		back.call(3, "run_lease_release", leaseID(m))
		if body := <-answered; !strings.Contains(body, `"token":`) {
			t.Errorf("the second in line: %s", body)
		}
		other.do(t, "DELETE", "", session...)
		if m := last.receive(); m.Result.IsError {
			t.Errorf("the last in line: %s", m.text())
		}
		last.call(3, "run_lease_acquire", `{"key":"b","wait_secs":50}`)
		began := time.Now()
		if m := last.receive(); m.Result.IsError {
			t.Errorf("what a client held that did not come back: %s", m.text())
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it was kept for %v", took)
		}
	})
}

// A client over HTTP has as long to come back as others if the server is lost through
// which it came, whether it had a call or a stream there.
func TestAnHTTPClientHasTimeToLeaveALostServer(t *testing.T) {
	for name, open := range map[string]string{"a call": "POST", "a stream": "GET"} {
		for _, after := range []time.Duration{9 * time.Second, 11 * time.Second} {
			t.Run(fmt.Sprint(name, " and ", after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					hub := newHub(t, server.Options{})
					lost, other := hub.door(t, server.Options{}), hub.door(t, server.Options{})
					holder := hub.dial(t, "holder")
					holder.call(1, "run_lease_acquire", `{"key":"a"}`)
					holder.receive()
					session := lost.open(t)
					body := ""
					if open == "POST" {
						body = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50}}}`
					}
					broken := make(chan struct{})
					go func() {
						defer close(broken)
						resp, err := lost.client.Do(lost.request(t, open, body, session...))
						if err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					}()
					time.Sleep(time.Second)
					lost.die()
					<-broken
					time.Sleep(after)
					other.token = lost.token
					resp, _ := other.do(t, "POST", ping, session...)
					if known := resp.StatusCode == 200; known != (after < 10*time.Second) {
						t.Errorf("it came back: %s", resp.Status)
					}
				})
			})
		}
	}
}

// A call that is sent again while the connection on which it was sent first is not
// known to be lost takes that one's place.
func TestHTTPCallSentAgainBeforeItsLossIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		holder := w.dial(t, "holder")
		holder.call(1, "run_lease_acquire", `{"key":"a"}`)
		id := leaseID(holder.receive())
		session := w.open(t)
		const waiting = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"a","wait_secs":50},"_meta":{"leasehold/call":"m"}}}`
		answers := make(chan string, 2)
		for range 2 {
			go func() {
				_, body := w.do(t, "POST", waiting, session...)
				answers <- body
			}()
			time.Sleep(time.Second)
		}
		if body := <-answers; strings.Contains(body, "token") {
			t.Errorf("the first was answered %s", body)
		}
		holder.call(2, "run_lease_release", id)
		if body := <-answers; !strings.Contains(body, `"token":`) {
			t.Errorf("the second was answered %s", body)
		}
		if resp, _ := w.do(t, "POST", ping, session...); resp.StatusCode != 200 {
			t.Errorf("after it: %s", resp.Status)
		}
	})
}

// Whoever does not know the secret of the servers learns nothing, and is passed on by
// nobody.
func TestPassagesAreOfThoseWhoKnowTheSecret(t *testing.T) {
	if _, err := server.ClusterTLS(bytes.Repeat([]byte("x"), 31)); err == nil {
		t.Error("a short secret was taken")
	}
	synctest.Test(t, func(t *testing.T) {
		hub := newHub(t, server.Options{})
		wrong, err := server.ClusterTLS([]byte(strings.ToUpper(clusterSecret)))
		if err != nil {
			t.Fatal(err)
		}
		for name, config := range map[string]*tls.Config{
			"another secret":  wrong,
			"no certificate":  {InsecureSkipVerify: true},
			"believes anyone": {InsecureSkipVerify: true, Certificates: wrong.Certificates},
		} {
			nc, _ := hub.ln.dial(t.Context(), "", "")
			nc.SetDeadline(time.Now().Add(time.Second)) // a pipe has no buffer
			secure := tls.Client(nc, config)
			line, err := "", secure.HandshakeContext(t.Context())
			if err == nil {
				_, err = fmt.Fprintf(secure, `{"leasehold_relay":1,"peer":{}}`+"\n")
			}
			if err == nil {
				line, err = bufio.NewReader(secure).ReadString('\n')
			}
			if err == nil {
				t.Errorf("%s: answered %q", name, line)
			}
			nc.Close()
		}
		// One that pretends to have the state is found out before it is told anything.
		near, far := net.Pipe()
		far.SetDeadline(time.Now().Add(time.Second))
		pretender := tls.Server(far, &tls.Config{Certificates: wrong.Certificates, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true})
		heard := make(chan error, 1)
		go func() {
			n, err := pretender.Read(make([]byte, 100))
			if n > 0 {
				err = errors.New("it was told something")
				t.Error(err)
			}
			heard <- err
		}()
		way := server.Way{Dial: func(ctx context.Context) (net.Conn, error) {
			secure := tls.Client(near, hub.tls)
			return secure, secure.HandshakeContext(ctx)
		}}
		if way.Poke(t.Context()) == nil {
			t.Error("a pretender was believed")
		}
		near.Close()
		<-heard
	})
}
