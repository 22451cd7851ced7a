package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// All waiting calls of an actor may wake at once, so their number is limited,
// however many connections it has.
func TestWaitingCallsOfAnActorAreLimited(t *testing.T) {
	onlySoMuchWaits(t, 2, server.MaxWaits, waiting, "waiting calls of one actor, at most 512")
}

// The size of the messages of an actor's waiting calls is limited, too. What others need to
// renew and to release stays free.
func TestBytesOfWaitingCallsOfAnActorAreLimited(t *testing.T) {
	large := strings.Replace(waiting, "{", `{"padding":"`+strings.Repeat("a", 4<<20-1<<10)+`",`, 1)
	onlySoMuchWaits(t, 1, 8, large, "bytes of waiting calls of one actor, at most 33554432; let one end first")
}

// onlySoMuchWaits has an actor make as many waiting calls over each of its connections. The
// next one over another connection is refused, and that of another actor is not.
func onlySoMuchWaits(t *testing.T, connections, calls int, args, refusal string) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		b := d.addBlocker()
		d.token(t, "root")
		hello := server.Hello{Token: d.token(t, "w")}
		for range connections {
			p := d.pipe(t)
			p.greet(hello)
			for i := range calls {
				p.call(i, "block", args)
				<-b.began
			}
		}
		p := d.pipe(t)
		p.greet(hello)
		p.call(1, "block", args)
		if m := p.receive(); !strings.Contains(m.text(), refusal) {
			t.Errorf("the one after: %.200s", m.text())
		}
		d.dial(t, "other").call(1, "block", args)
		<-b.began
	})
}

// A stream of events is a call that waits, too: each event wakes all of them.
func TestStreamsOfAnActorAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{})).open()
		_, token, err := p.state.IssueAccess(t.Context(), "page", dispatch.Reader, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 512/8 + 1 { // a session has 8 at most
			reader := (&program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}).open()
			for range 8 {
				resp, err := reader.client.Do(reader.request(t.Context(), "GET", "/runs/r/events/stream", ""))
				if err != nil {
					t.Fatal(err)
				}
				if i < 512/8 {
					if t.Cleanup(func() { resp.Body.Close() }); resp.StatusCode != http.StatusOK {
						t.Fatalf("a stream of session %d: %s", i, resp.Status)
					}
					continue
				}
				if resp.StatusCode != http.StatusTooManyRequests {
					resp.Body.Close()
					t.Fatalf("the 513th stream: %s", resp.Status)
				}
				text, _ := io.ReadAll(resp.Body)
				if !strings.Contains(string(text), "waiting calls of one actor, at most 512") {
					t.Fatalf("the 513th stream: %s %s", resp.Status, text)
				}
				return
			}
		}
	})
}

// send opens a connection and sends what may be a part of a request.
func (w *web) send(t *testing.T, text string) net.Conn {
	t.Helper()
	nc, err := w.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	go nc.Write([]byte(text)) // ends with the connection
	return nc
}

// Over HTTP the same goes for half of a large request.
func TestHalfOfALargeRequestIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		other := p.another("other")
		large := `{"payload":"` + strings.Repeat("x", 100<<10) + `"}`
		var halves []net.Conn
		for range server.MaxActorArriving {
			halves = append(halves, p.send(t, "POST /api/v1/queues/q/tasks HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+p.token+
				"\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n"+large))
		}
		synctest.Wait()
		start := time.Now()
		other.want(201, "POST", "/queues/q/tasks", large)
		p.want(201, "POST", "/queues/q/tasks", `{"payload":1}`)
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("a large request of another actor, and a small one of the same, waited for %v", waited)
		}
		time.Sleep(time.Second) // or it would be cut off at the same instant as the halves
		p.want(201, "POST", "/queues/q/tasks", large)
		if waited := time.Since(start); waited != 30*time.Second {
			t.Errorf("a large request of the same actor was served after %v, when those before it were cut off", waited)
		}
		for _, half := range halves {
			answer, err := io.ReadAll(half)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "did not arrive within 30s") {
				t.Errorf("half of a request is answered %q, %v", answer, err)
			}
		}
		if tasks := p.want(200, "GET", "/queues?queue=q", ""); !strings.Contains(tasks.body, `"ready":3`) {
			t.Errorf("the queue: %s", tasks.body)
		}
	})
}

// A client that sends half of a large message takes one of few places, and is
// cut off in the end. Other messages, and large ones of other actors, arrive
// meanwhile.
func TestHalfOfALargeMessageIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		d.AddTestTool("echo", func(context.Context, *dispatch.Session) string { return "echo" })
		d.token(t, "root")
		hello := server.Hello{Token: d.token(t, "w")}
		large := `{"text":"` + strings.Repeat("x", 100<<10) + `"}`
		var halves []*peer
		for range server.MaxActorArriving {
			p := d.pipe(t)
			p.greet(hello)
			go p.nc.Write([]byte(large)) // without a newline
			halves = append(halves, p)
		}
		synctest.Wait()
		other := d.dial(t, "other")
		other.call(1, "echo", large)
		if m := other.receive(); m.text() != "echo" {
			t.Errorf("a large message of another actor: %s", m.text())
		}
		p := d.pipe(t)
		p.greet(hello)
		p.call(1, "echo", `{}`)
		if m := p.receive(); m.text() != "echo" {
			t.Errorf("a small message of the same actor: %s", m.text())
		}
		start := time.Now()
		go p.call(2, "echo", large)
		if m := p.receive(); m.text() != "echo" {
			t.Errorf("a large message of the same actor: %s", m.text())
		}
		if waited := time.Since(start); waited != 30*time.Second {
			t.Errorf("it was served after %v, when those before it were cut off", waited)
		}
		for _, p := range halves {
			if _, err := p.br.ReadByte(); err == nil {
				t.Error("a client that does not finish its message is not cut off")
			}
		}
	})
}
