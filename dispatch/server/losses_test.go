package server_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch/server"
)

// A loser is a client that loses something, over one of the transports.
type loser struct {
	ask    func(tool, arguments string) string // returns the object of the answer
	hangUp func()                              // ends the session without a word
}

// losers connect as the actor of a token.
var losers = map[string]func(t *testing.T, w *web, token string) loser{
	"the socket": func(t *testing.T, w *web, token string) loser {
		p := w.pipe(t)
		p.greet(server.Hello{Token: token})
		return loser{asking(p), func() { p.nc.Close() }}
	},
	"MCP over HTTP": func(t *testing.T, w *web, token string) loser {
		one := &web{daemon: w.daemon, client: w.client, token: token}
		session := one.open(t)
		return loser{func(tool, arguments string) string {
			_, body := one.do(t, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments), session...)
			return objectOf(t, body)
		}, func() { time.Sleep(20 * time.Minute) }}
	},
	"the API": func(t *testing.T, w *web, token string) loser {
		p := newProgram(t, w)
		p.web = &web{daemon: w.daemon, client: w.client, token: token}
		p.open()
		return loser{func(tool, arguments string) string {
			var given args
			if err := json.Unmarshal([]byte(arguments), &given); err != nil {
				t.Fatal(err)
			}
			method, path, body, header := routeOf(tool, given)
			return p.ask(method, path, body, header...).body
		}, func() { time.Sleep(20 * time.Minute) }}
	},
}

// asking returns the ask of a loser at the socket.
func asking(p *peer) func(tool, arguments string) string {
	return func(tool, arguments string) string {
		p.call(5, tool, arguments)
		for {
			if m := p.receive(); m.Method == "" {
				return string(m.Result.StructuredContent)
			}
		}
	}
}

func objectOf(t *testing.T, line string) string {
	t.Helper()
	var m message
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	return string(m.Result.StructuredContent)
}

// lossesIn counts the notices of lost leases and claims in the object of an answer.
func lossesIn(t *testing.T, object string) (n int) {
	t.Helper()
	var said struct{ Notices []struct{ Code string } }
	if err := json.Unmarshal([]byte(object), &said); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	for _, notice := range said.Notices {
		if notice.Code == "LEASE_LOST" {
			n++
		}
	}
	return n
}

// However a lease or a claim is lost, and whatever its client speaks, the next answers of the
// actor tell it once.
func TestEachLossIsToldOnce(t *testing.T) {
	const lease = `{"key":"a","ttl_secs":60}`
	take := func(l loser) string {
		var granted struct {
			LeaseID string `json:"lease_id"`
		}
		if err := json.Unmarshal([]byte(l.ask("run_lease_acquire", lease)), &granted); err != nil || granted.LeaseID == "" {
			t.Fatal(granted, err)
		}
		return granted.LeaseID
	}
	claim := func(l loser) string {
		l.ask("task_enqueue", `{"queue":"q","payload":1}`)
		var claimed struct {
			Tasks []struct {
				TaskID string `json:"task_id"`
			}
		}
		if err := json.Unmarshal([]byte(l.ask("task_claim", `{"queues":["q"],"ttl_secs":60}`)), &claimed); err != nil || len(claimed.Tasks) != 1 {
			t.Fatal(claimed, err)
		}
		return claimed.Tasks[0].TaskID
	}
	type parties struct{ own, other, twin, lead loser } // twin is another session of the same actor
	revoke := func(p parties, _ string) {
		p.lead.ask("lease_revoke", `{"scope":"run","key":"a","reason":"a test"}`)
	}
	for name, c := range map[string]struct {
		hold func(loser) string
		lose func(p parties, id string) // nil: its session ends, and another of its actor is told
	}{
		"revoked":           {take, revoke},
		"revoked and taken": {take, func(p parties, id string) { revoke(p, id); p.other.ask("run_lease_acquire", lease) }},
		"expired":           {take, func(parties, string) { time.Sleep(2 * time.Minute) }},
		"expired and taken": {take, func(p parties, _ string) { time.Sleep(2 * time.Minute); p.other.ask("run_lease_acquire", lease) }},
		"expired and handed over": {take, func(p parties, _ string) {
			for range 3 {
				p.other.ask("run_lease_acquire", `{"key":"a","wait_secs":30}`)
			}
		}},
		"transferred": {take, func(p parties, id string) {
			p.own.ask("lease_transfer", `{"lease_id":"`+id+`","to":"W2"}`)
			p.other.ask("run_lease_acquire", lease)
		}},
		"adopted": {take, func(p parties, id string) { p.twin.ask("lease_renew", `{"lease_id":"`+id+`"}`) }},
		"released by another session": {take, func(p parties, id string) {
			p.twin.ask("run_lease_release", `{"lease_id":"`+id+`"}`)
		}},
		"its session ended": {take, nil},
		"claim expired":     {claim, func(parties, string) { time.Sleep(2 * time.Minute) }},
		"claim expired and taken": {claim, func(p parties, _ string) {
			time.Sleep(3 * time.Minute)
			p.other.ask("task_claim", `{"queues":["q"],"ttl_secs":60}`)
		}},
		"task cancelled":                 {claim, func(p parties, id string) { p.lead.ask("task_cancel", `{"task_id":"`+id+`"}`) }},
		"its session with a claim ended": {claim, nil},
	} {
		for transport, connect := range losers {
			t.Run(name+" over "+transport, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := newDaemon(t, server.Options{})
					w := &web{daemon: d}
					w.listen(t)
					socket, lead, token := losers["the socket"], d.token(t, "root"), d.token(t, "W1")
					p := parties{connect(t, w, token), socket(t, w, d.token(t, "W2")), socket(t, w, token), socket(t, w, lead)}
					id, l := c.hold(p.own), p.own
					if c.lose != nil {
						c.lose(p, id)
					} else {
						l.hangUp()
						time.Sleep(time.Minute)
						l = p.twin
					}
					told := 0
					for range 3 {
						told += lossesIn(t, l.ask("lease_list", `{}`))
					}
					if told != 1 {
						t.Errorf("it was told %d times", told)
					}
					for _, other := range []loser{p.twin, p.other} {
						if told := lossesIn(t, other.ask("lease_list", `{}`)); told > 0 {
							t.Errorf("another was told %d times", told)
						}
					}
				})
			})
		}
	}
}
