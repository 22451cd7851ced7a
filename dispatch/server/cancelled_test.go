package server_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/clock"
)

// A program that cancels a call by its key has none of its answers, whatever has become
// of the call: it was sent twice, it has a request_id too, or the daemon that answered it
// has ended.
func TestACancelByKeyReachesEveryRequestOfTheCall(t *testing.T) {
	const twice, restarted = true, true
	for name, c := range map[string]struct {
		body             string
		twice, restarted bool
	}{
		"sent twice":                         {`{"key":"a","ttl_secs":3600}`, twice, false},
		"with a request_id":                  {`{"key":"a","ttl_secs":3600,"request_id":"r"}`, false, false},
		"after a restart":                    {`{"key":"a","ttl_secs":3600}`, false, restarted},
		"sent twice, after a restart":        {`{"key":"a","ttl_secs":3600}`, twice, restarted},
		"with a request_id, after a restart": {`{"key":"a","ttl_secs":3600,"request_id":"r"}`, false, restarted},
		"that may wait, after a restart":     {`{"key":"a","ttl_secs":3600,"wait_secs":50}`, false, restarted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := vfs.NewMem()
				d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
				one := newProgram(t, newWebOf(t, d)).open()
				call := []string{"Idempotency-Key", "call"}
				one.want(201, "POST", "/leases", c.body, call...)
				task := one.want(201, "POST", "/queues/q/tasks", `{"payload":1}`, "Idempotency-Key", "task").text("task_id")
				if c.twice {
					one.want(201, "POST", "/leases", c.body, call...)
				}
				if c.restarted {
					d.close()
					d = newDaemonOn(t, fs, clock.Clock{}, server.Options{})
					one.daemon = d
					one.listen(t)
				}
				one.want(204, "DELETE", "/calls/call", "")
				one.want(204, "DELETE", "/calls/task", "")
				one.another("two").open().want(201, "POST", "/leases", `{"key":"a"}`)
				one.want(404, "GET", "/tasks/"+task, "")
			})
		})
	}
}

// A call that waits when the daemon stops keeps its place in the line, so that its program
// can send it again. A program that cancels it instead must not stay there, where a free
// key would be reserved for it.
func TestACancelByKeyAfterARestartTakesTheCallOutOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem()
		d := newDaemonOn(t, fs, clock.Clock{}, server.Options{})
		one := newProgram(t, newWebOf(t, d)).open()
		two := one.another("two").open()
		two.want(201, "POST", "/leases", `{"key":"a","ttl_secs":3600}`)
		var waits sync.WaitGroup
		waits.Go(func() {
			one.want(503, "POST", "/leases", `{"key":"a","wait_secs":50}`, "Idempotency-Key", "call")
		})
		synctest.Wait()
		d.close()
		waits.Wait()
		d = newDaemonOn(t, fs, clock.Clock{}, server.Options{})
		one.daemon, two.daemon = d, d
		one.listen(t)
		two.listen(t)
		inLine := func() bool {
			return strings.Contains(two.want(200, "GET", "/leases?scope=run", "").body, `"waiting_ms"`)
		}
		if !inLine() {
			t.Fatal("the call has lost its place")
		}
		one.want(204, "DELETE", "/calls/call", "")
		if inLine() {
			t.Error("the cancelled call is still in line")
		}
	})
}

// A cancel that has reached its call counts for no later one with the key.
func TestACancelByKeyEndsOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		lease := two.want(201, "POST", "/leases", `{"key":"a","ttl_secs":60}`).text("lease_id")
		answers := make(chan answer)
		post := func() {
			answers <- one.ask("POST", "/leases", `{"key":"a","wait_secs":50}`, "Idempotency-Key", "k")
		}
		go post()
		synctest.Wait()
		one.want(204, "DELETE", "/calls/k", "")
		if a := <-answers; a.text("code") != "REQUEST_ID_REUSED" {
			t.Errorf("the call is answered %s", a.body)
		}
		go post()
		synctest.Wait()
		two.want(200, "DELETE", "/leases/"+lease, "")
		if a := <-answers; a.status != 201 {
			t.Errorf("the next call is answered %s", a.body)
		}
	})
}

// Each request of a program has a connection of its own, so that a cancel may overtake its
// call. Its program will not read the answer of that.
func TestACancelByKeyMayOvertakeItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		key := []string{"Idempotency-Key", "k"}
		for _, call := range []struct{ path, body string }{
			{"/leases", `{"key":"a"}`}, // the key belongs to the session
			{"/leases", `{"key":"a","wait_secs":50}`},
			{"/queues/q/tasks", `{"payload":1}`}, // the key belongs to the actor
		} {
			one.want(204, "DELETE", "/calls/k", "")
			refused := one.want(409, "POST", call.path, call.body, key...)
			if refused.text("code") != "REQUEST_ID_REUSED" {
				t.Errorf("%s: %s", call.path, refused.body)
			}
			two.want(204, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`)
			two.want(200, "DELETE", "/leases/"+two.want(201, "POST", "/leases", `{"key":"a"}`).text("lease_id"), "")
		}
		one.want(204, "DELETE", "/calls/k", "")
		time.Sleep(3 * time.Second) // no request of the call is on its way
		one.want(201, "POST", "/leases", `{"key":"a"}`, key...)
	})
}

// What a second call with the same request_id was told of is not taken from it.
func TestACancelByKeyTakesNothingFromAnotherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		body := `{"key":"a","request_id":"r"}`
		one.want(201, "POST", "/leases", body, "Idempotency-Key", "1")
		one.want(201, "POST", "/leases", body, "Idempotency-Key", "2")
		one.want(204, "DELETE", "/calls/1", "")
		one.another("two").open().want(409, "POST", "/leases", `{"key":"a"}`)
	})
}

// An answer of a call that could not be undone stays, so that the call has one effect
// when it is sent again.
func TestAnEnqueueThatIsCancelledTooLateIsNotMadeTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		key := []string{"Idempotency-Key", "k"}
		made := one.want(201, "POST", "/queues/q/tasks", `{"payload":1}`, key...)
		two.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":60}`)
		one.want(204, "DELETE", "/calls/k", "")
		again := one.want(201, "POST", "/queues/q/tasks", `{"payload":1}`, key...)
		if made.text("task_id") != again.text("task_id") {
			t.Errorf("two tasks: %s, %s", made.body, again.body)
		}
	})
}

// A request that was broken off may arrive after the one by which its client has sent the
// call again. Whoever is still there gets the answer. If two clients send one call at the
// same time, one of them gets it, and the other is told to send it again.
func TestACopyThatArrivesLateLeavesTheAnswerToItsClient(t *testing.T) {
	const body = `{"key":"a","wait_secs":30}`
	key := []string{"Idempotency-Key", "k"}
	for name, here := range map[string]bool{"its client is gone": false, "its client is there": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := newProgram(t, newWeb(t, server.Options{})).open()
				two := one.another("two").open()
				held := two.want(201, "POST", "/leases", `{"key":"a"}`).text("lease_id")
				again := func() <-chan answer {
					answered := make(chan answer, 1)
					go func() { answered <- one.ask("POST", "/leases", body, key...) }()
					synctest.Wait()
					return answered
				}
				answers := []<-chan answer{again()}
				if here {
					answers = append(answers, again())
				} else {
					one.unread(one.request(t.Context(), "POST", "/leases", body, key...))
					synctest.Wait()
				}
				time.Sleep(time.Second)
				two.want(200, "DELETE", "/leases/"+held, "")
				taken := 0
				for _, answered := range answers {
					switch a := <-answered; {
					case a.status == 201:
						taken++
					case !here || a.text("code") != "UNAVAILABLE":
						t.Errorf("%d %s", a.status, a.body)
					}
				}
				if taken != 1 {
					t.Errorf("%d requests got the answer", taken)
				}
				time.Sleep(30 * time.Second)
				two.want(409, "POST", "/leases", `{"key":"a"}`)
			})
		})
	}
}

// A client may cancel a call whose answer it has, as some do when their user interrupts
// them. What it holds by then is its own, however long ago the answer came.
func TestALateCancelUndoesNothing(t *testing.T) {
	const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`
	const call = `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"run_lease_acquire","arguments":{"key":"k"}}}`
	for name, callAndCancel := range map[string]func(*testing.T, *web){
		"connection": func(t *testing.T, w *web) {
			p := w.pipe(t)
			p.greet(server.Hello{Token: w.token})
			p.send("%s", call)
			p.receive()
			time.Sleep(3 * time.Second)
			p.send("%s", cancel)
		},
		"HTTP": func(t *testing.T, w *web) {
			session := w.open(t)
			w.do(t, "POST", call, session...)
			time.Sleep(3 * time.Second)
			w.do(t, "POST", cancel, session...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWeb(t, server.Options{})
				other := newProgram(t, w).another("other").open()
				callAndCancel(t, w)
				synctest.Wait()
				other.want(409, "POST", "/leases", `{"key":"k"}`)
			})
		})
	}
}

// A program may have several calls under way, and answers that it has just read. A cancel
// by key reaches none of the others.
func TestACancelByKeyReachesNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newProgram(t, newWeb(t, server.Options{})).open()
		two := one.another("two").open()
		busy := two.want(201, "POST", "/leases", `{"key":"busy"}`).text("lease_id")
		one.want(201, "POST", "/leases", `{"key":"kept"}`, "Idempotency-Key", "kept")
		one.want(201, "POST", "/leases", `{"key":"cancelled"}`, "Idempotency-Key", "cancelled")
		var waits sync.WaitGroup
		waits.Go(func() {
			one.want(201, "POST", "/leases", `{"key":"busy","wait_secs":50}`, "Idempotency-Key", "waits")
		})
		synctest.Wait()
		one.want(204, "DELETE", "/calls/cancelled", "")
		two.want(200, "DELETE", "/leases/"+busy, "")
		waits.Wait()
		two.want(201, "POST", "/leases", `{"key":"cancelled"}`)
		two.want(409, "POST", "/leases", `{"key":"kept"}`)
	})
}
