package server_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// An operator that replaces its own token has only the old one until it has the answer. If
// that is lost, it asks for it again with the old one.
func TestAnOperatorMayLoseTheAnswerThatReplacesItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		operator := func(name string) *program {
			_, token, err := p.state.IssueAccess(t.Context(), name, dispatch.Operator, 0)
			if err != nil {
				t.Fatal(err)
			}
			return &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}
		}
		valid := func(want bool, tokens ...string) {
			t.Helper()
			for _, token := range tokens {
				status := 401
				if want {
					status = 200
				}
				(&program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}).want(status, "GET", "/runs", "")
			}
		}
		ops, boss := operator("ops"), operator("boss")
		old := ops.token
		rotate := func(p *program, header ...string) string {
			t.Helper()
			return p.want(201, "POST", "/tokens/ops/rotate", `{}`, header...).text("token")
		}
		lost := rotate(ops, "Idempotency-Key", "k")
		next := rotate(ops, "Idempotency-Key", "k")
		valid(false, lost)
		valid(true, next)
		valid(false, old)

		// Without a key, each call issues another token.
		ops.token = next
		lost = rotate(ops)
		last := rotate(ops)
		valid(false, lost)
		valid(true, last)
		valid(false, next)

		// What another replaces is void at once, also if it was being replaced.
		ops.token = last
		unused := rotate(ops)
		given := rotate(boss)
		valid(false, last, unused)
		valid(true, given)
		ops.token = given
		rotate(ops)
		boss.want(200, "DELETE", "/tokens/ops", "")
		valid(false, given)
	})
}

// The token of an operator or reader that was revoked or replaced, or has expired, shows
// nothing more: a connection that it has opened ends, and a call or stream that waits
// does not tell what happens later.
func TestAVoidTokenEndsWhatItHasOpened(t *testing.T) {
	for name, void := range map[string]func(*testing.T, *program){
		"revoked": func(t *testing.T, p *program) {
			if _, err := p.state.RevokeAccess(t.Context(), "page"); err != nil {
				t.Error(err)
			}
		},
		"replaced": func(t *testing.T, p *program) {
			if _, _, err := p.state.RotateAccess(t.Context(), "page", uuid.Nil); err != nil {
				t.Error(err)
			}
		},
		"expired": func(*testing.T, *program) { time.Sleep(10*time.Second + time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProgram(t, newWeb(t, server.Options{})).open()
				_, token, err := p.state.IssueAccess(t.Context(), "page", dispatch.Reader, 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				reader := &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book}
				conn := p.pipe(t)
				conn.greet(server.Hello{Token: token})
				next := number(reader.want(200, "GET", "/runs/r/events?back=1", "").object["next"])
				stream, err := reader.client.Do(reader.request(t.Context(), "GET", "/runs/r/events/stream?since="+next, ""))
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Body.Close()
				if _, err := io.ReadFull(stream.Body, make([]byte, 3)); err != nil { // a comment: it has begun
					t.Fatal(err)
				}
				waits := make(chan answer, 1)
				go func() { waits <- reader.ask("GET", "/runs/r/events?wait_secs=30&since="+next, "") }()
				conn.call(1, "operator_events", `{"run":"r","since":`+next+`,"wait_secs":30}`)
				synctest.Wait()

				void(t, p)
				p.want(201, "POST", "/leases", `{"key":"later"}`)
				if a := <-waits; a.status != 401 || strings.Contains(a.body, "later") {
					t.Errorf("a call that waited: %d %s", a.status, a.body)
				}
				if text, _ := io.ReadAll(stream.Body); strings.Contains(string(text), "later") {
					t.Errorf("a stream: %s", text)
				}
				if m := conn.receive(); !strings.Contains(string(m.Result.StructuredContent), "UNAUTHENTICATED") {
					t.Errorf("a call that waited on a connection: %s", m.Result.StructuredContent)
				}
				conn.expectClosed()
			})
		})
	}
}

// An actor's token may be replaced, or expire, while a call over HTTP waits. The call is
// refused, and nothing is given to it: whoever sent it could not give that back. Neither
// does its stream keep its session, and what that holds, alive.
func TestAVoidTokenIsGivenNothing(t *testing.T) {
	for name, void := range map[string]func(*testing.T, *program){
		"replaced": func(t *testing.T, p *program) {
			if _, _, err := p.state.ReissueToken(t.Context(), "r", "w", 0); err != nil {
				t.Error(err)
			}
		},
		"expired": func(*testing.T, *program) { time.Sleep(10*time.Second + time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProgram(t, newWeb(t, server.Options{}))
				other := p.another("other").open()
				other.want(201, "POST", "/leases", `{"key":"late","ttl_secs":600}`)
				busy := other.want(201, "POST", "/leases", `{"key":"busy","ttl_secs":600}`).text("lease_id")
				_, token, err := p.state.ReissueToken(t.Context(), "r", "w", 10*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				p.token = token
				p.open()
				p.want(201, "POST", "/leases", `{"key":"kept","ttl_secs":20,"keep_alive":true}`)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				stream, err := p.client.Do(p.request(ctx, "GET", "/session/notices", "", "Accept", "text/event-stream"))
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Body.Close()
				go func() { // answered after the stream has ended
					p.ask("POST", "/leases", `{"key":"late","wait_secs":50}`)
				}()
				session := p.web.open(t)
				answers := make(chan string, 3)
				for _, ask := range []func() (status int, body string){
					func() (int, string) {
						a := p.ask("POST", "/tasks/next", `{"queues":["q"],"ttl_secs":600,"wait_secs":30}`)
						return a.status, a.body
					},
					func() (int, string) {
						a := p.ask("POST", "/leases", `{"key":"busy","ttl_secs":600,"wait_secs":30}`)
						return a.status, a.body
					},
					func() (int, string) {
						resp, body := p.do(t, "POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"task_claim","arguments":{"queues":["q"],"ttl_secs":600,"wait_secs":30}}}`, session...)
						return resp.StatusCode, body
					},
				} {
					go func() {
						status, body := ask()
						answers <- fmt.Sprint(status, " ", body)
					}()
					synctest.Wait()
				}

				void(t, p)
				other.want(200, "DELETE", "/leases/"+busy, "")
				other.enqueue(2)
				for range 3 {
					if a := <-answers; !strings.Contains(a, "unauthenticated: the token ") {
						t.Errorf("a call that waited: %s", a)
					}
				}
				synctest.Wait()
				if a := other.ask("POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60,"count":2}`); strings.Count(a.body, `"attempt":1,`) != 2 {
					t.Errorf("then another gets the tasks %s", a.body)
				}
				other.want(201, "POST", "/leases", `{"key":"busy"}`)

				if _, _ = io.Copy(io.Discard, stream.Body); ctx.Err() != nil {
					t.Error("the stream does not end")
				}
				time.Sleep(time.Minute)
				other.want(201, "POST", "/leases", `{"key":"kept"}`)
			})
		})
	}
}

// An actor may end while its call over HTTP waits. The answer says who has ended it, and
// which lease it has lost.
func TestAnActorThatEndsIsToldInItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram(t, newWeb(t, server.Options{}))
		p.another("other").open().want(201, "POST", "/leases", `{"key":"busy","ttl_secs":600}`)
		session := p.web.open(t)
		acquire := func(arguments string) string {
			_, body := p.do(t, "POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":`+arguments+`}}`, session...)
			return body
		}
		acquire(`{"key":"kept","ttl_secs":600}`)
		answer := make(chan string)
		go func() { answer <- acquire(`{"key":"busy","wait_secs":30}`) }()
		synctest.Wait()
		if err := p.state.EndActor(t.Context(), "r", "w", "enough"); err != nil {
			t.Error(err)
		}
		told := <-answer
		for _, want := range []string{"has ended, by operator", "enough", `its lease \"kept\" is released`} {
			if !strings.Contains(told, want) {
				t.Errorf("it is told %s, without %q", told, want)
			}
		}
	})
}
