package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A tree is a run with a sub-lead whose layer its parent reads, one whose it does
// not, and a worker in each.
func (d *daemon) tree(t *testing.T) (tokens map[string]string) {
	t.Helper()
	tokens = make(map[string]string)
	for _, a := range []dispatch.NewActor{
		{Name: "root", Role: dispatch.Root},
		{Name: "S1", Role: dispatch.Sublead, ReadDown: true},
		{Name: "S2", Role: dispatch.Sublead},
		{Name: "W1", Role: dispatch.Worker, Parent: "S1"},
		{Name: "W2", Role: dispatch.Worker, Parent: "S2"},
	} {
		a.Run = "r"
		_, token, err := d.state.AddActor(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		tokens[a.Name] = token
	}
	return tokens
}

// actor connects as an actor and shakes hands.
func (d *daemon) actor(t *testing.T, token string) *peer {
	t.Helper()
	p := d.pipe(t)
	p.greet(server.Hello{Token: token})
	p.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	p.receive()
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return p
}

// resource makes a request about a resource and gives its answer as it came. Other
// messages are passed over.
func (p *peer) resource(method, uri string) string {
	p.t.Helper()
	p.send(`{"jsonrpc":"2.0","id":"r","method":"resources/%s","params":{"uri":%q}}`, method, uri)
	for {
		line, err := p.br.ReadString('\n')
		if err != nil {
			p.t.Fatal(err)
		}
		if strings.Contains(line, `"id":"r"`) {
			return line
		}
	}
}

// updates are the URIs of the updates that have come by the time that all is quiet.
func (p *peer) updates() (uris []string) {
	p.t.Helper()
	time.Sleep(time.Second)
	for {
		p.nc.SetReadDeadline(time.Now().Add(time.Millisecond))
		line, err := p.br.ReadString('\n')
		p.nc.SetReadDeadline(time.Time{})
		if err != nil {
			return uris
		}
		var m struct {
			Method string
			Params struct{ URI string }
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			p.t.Fatal(err)
		}
		if m.Method == "notifications/resources/updated" {
			uris = append(uris, m.Params.URI)
		}
	}
}

func (p *peer) mustCall(tool, arguments string) (object string) {
	p.t.Helper()
	p.call("c", tool, arguments)
	for {
		m := p.receive()
		if string(m.ID) != `"c"` {
			continue
		}
		if m.Result.IsError || m.Error != nil {
			p.t.Fatalf("%s %s: %s", tool, arguments, m.text())
		}
		return string(m.Result.StructuredContent)
	}
}

// An actor is shown and reads the leases of its run, those of the layers that its
// tools let it read, and queues. Of another layer it does not learn whether it is
// there.
func TestResourcesAreWhatAnActorsToolsLetItRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		tokens := d.tree(t)
		w2 := d.actor(t, tokens["W2"])
		w2.mustCall("lease_acquire", `{"name":"secret plan"}`)
		w2.mustCall("run_lease_acquire", `{"key":"port 3000","reason":"tests"}`)
		w2.mustCall("task_enqueue", `{"queue":"jobs","payload":1}`)
		d.actor(t, tokens["W1"]).mustCall("lease_acquire", `{"name":"draft"}`)
		for name, want := range map[string][]string{
			"root": {"lease://run", "lease://layer/root", "lease://layer/S1", "queue://jobs"},
			"S1":   {"lease://run", "lease://layer/S1", "lease://layer/root", "queue://jobs"},
			"S2":   {"lease://run", "lease://layer/S2", "lease://layer/root", "queue://jobs"},
			"W1":   {"lease://run", "lease://layer/S1", "queue://jobs"},
			"W2":   {"lease://run", "lease://layer/S2", "queue://jobs"},
		} {
			p := d.actor(t, tokens[name])
			var listed struct {
				Result struct{ Resources []struct{ URI string } }
			}
			if err := json.Unmarshal([]byte(p.resource("list", "")), &listed); err != nil {
				t.Fatal(err)
			}
			var uris []string
			for _, r := range listed.Result.Resources {
				uris = append(uris, r.URI)
			}
			if !slices.Equal(uris, want) {
				t.Errorf("%s is shown %q, not %q", name, uris, want)
			}
			for _, uri := range []string{"lease://run", "lease://layer/root", "lease://layer/S1", "lease://layer/S2", "queue://jobs", "queue://none"} {
				text := p.resource("read", uri)
				may := slices.Contains(want, uri) || uri == "queue://none"
				if may != strings.Contains(text, `"contents":[`) {
					t.Errorf("%s reads %s: %s", name, uri, text)
				}
				if subscribed := p.resource("subscribe", uri); may == strings.Contains(subscribed, `"error"`) {
					t.Errorf("%s subscribes to %s: %s", name, uri, subscribed)
				}
				if has := strings.Contains(text, "secret plan"); has != (uri == "lease://layer/S2" && may) {
					t.Errorf("%s reads %s: %s", name, uri, text)
				}
				if uri == "lease://run" && !strings.Contains(text, `\"reason\":\"tests\"`) || uri == "queue://jobs" && !strings.Contains(text, `\"ready\":1`) || uri == "queue://none" && !strings.Contains(text, `\"ready\":0`) {
					t.Errorf("%s reads %s: %s", name, uri, text)
				}
			}
			hidden, missing := p.resource("read", "lease://layer/S2/deep"), p.resource("read", "lease://layer/nobody/deep")
			if strings.ReplaceAll(hidden, "S2→deep", "nobody→deep") != missing || !strings.Contains(missing, "-32002") {
				t.Errorf("%s learns who is there: %s, %s", name, hidden, missing)
			}
		}
		w1 := d.actor(t, tokens["W1"])
		for _, uri := range []string{"", "lease://", "lease://run/x", "lease://layer/", "lease://layer/%zz", "queue://", "queue://a b", "file:///etc/passwd"} {
			if text := w1.resource("read", uri); !strings.Contains(text, "-32602") {
				t.Errorf("%q: %s", uri, text)
			}
		}
		for _, uri := range []string{"lease://layer/S1/", "lease://layer/S%31", "lease://run/"} {
			if text := w1.resource("read", uri); !strings.Contains(text, fmt.Sprintf(`"uri":%q`, uri)) {
				t.Errorf("%q: %s", uri, text)
			}
		}
		if text := w1.resource("templates/list", ""); !strings.Contains(text, `"uriTemplate":"lease://layer/{+path}"`) {
			t.Errorf("templates: %s", text)
		}
		operator := d.pipe(t)
		operator.greet(server.Hello{Operator: true})
		for _, method := range []string{"list", "read", "subscribe", "unsubscribe", "templates/list"} {
			if text := operator.resource(method, "lease://run"); !strings.Contains(text, `"error"`) {
				t.Errorf("an operator, %s: %s", method, text)
			}
		}
	})
}

// Whoever subscribes is told of what changes from then on, of that alone, and no
// more once it has unsubscribed.
func TestSubscribersAreToldWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		tokens := d.tree(t)
		reader, w1, w2 := d.actor(t, tokens["root"]), d.actor(t, tokens["W1"]), d.actor(t, tokens["W2"])
		w1.mustCall("run_lease_acquire", `{"key":"before"}`)
		for _, uri := range []string{"lease://run", "lease://layer/S1", "queue://jobs", "queue://others"} {
			if text := reader.resource("subscribe", uri); strings.Contains(text, "error") {
				t.Fatal(text)
			}
		}
		told := func(what string, want ...string) {
			t.Helper()
			if got := reader.updates(); !slices.Equal(got, want) {
				t.Errorf("after %s it is told of %q, not %q", what, got, want)
			}
		}
		told("nothing")
		grant := w1.mustCall("run_lease_acquire", `{"key":"port"}`)
		told("a grant", "lease://run")
		w1.mustCall("lease_acquire", `{"name":"draft"}`)
		told("a grant in its layer", "lease://layer/S1")
		w2.mustCall("lease_acquire", `{"name":"draft"}`)
		told("a grant in another layer")
		w2.call("w", "run_lease_acquire", `{"key":"port","wait_secs":50}`)
		told("a wait", "lease://run")
		var l struct {
			LeaseID string `json:"lease_id"`
		}
		if err := json.Unmarshal([]byte(grant), &l); err != nil {
			t.Fatal(err)
		}
		w1.mustCall("run_lease_release", fmt.Sprintf(`{"lease_id":%q}`, l.LeaseID))
		told("a hand-over", "lease://run")
		w1.mustCall("task_enqueue", `{"queue":"jobs","payload":1}`)
		told("a task", "queue://jobs")
		w1.mustCall("run_lease_acquire", `{"key":"short","ttl_secs":2}`)
		told("a grant", "lease://run")
		time.Sleep(2 * time.Second)
		told("an expiry", "lease://run")
		reader.resource("unsubscribe", "lease://run")
		w1.mustCall("run_lease_acquire", `{"key":"later"}`)
		w1.mustCall("task_enqueue", `{"queue":"others","payload":1}`)
		told("it has unsubscribed", "queue://others")
		for _, uri := range []string{"lease://layer/S1", "queue://jobs", "queue://others"} {
			reader.resource("unsubscribe", uri)
		}
		w1.mustCall("task_enqueue", `{"queue":"others","payload":1}`)
		told("it has unsubscribed from all")
		reader.resource("subscribe", "queue://others")
		told("it has subscribed again")
		w1.mustCall("task_enqueue", `{"queue":"others","payload":1}`)
		told("one more task", "queue://others")
		for i := range server.MaxSubscriptions {
			reader.resource("subscribe", fmt.Sprint("queue://q", i))
		}
		if text := reader.resource("subscribe", "queue://one-more"); !strings.Contains(text, "limit reached: subscriptions of one client, at most 64") {
			t.Error(text)
		}
	})
}

// A change that follows the answer to a subscription is told, however soon it is.
func TestNoChangeIsMissedBehindASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{})
		tokens := d.tree(t)
		reader, w1 := d.actor(t, tokens["root"]), d.actor(t, tokens["W1"])
		for i := range 50 {
			reader.resource("subscribe", "lease://run")
			w1.mustCall("run_lease_acquire", fmt.Sprintf(`{"key":"k%d"}`, i))
			if got := reader.updates(); len(got) != 1 {
				t.Fatalf("in round %d it is told of %q", i, got)
			}
			if i%2 == 0 {
				reader.resource("unsubscribe", "lease://run")
			}
		}
	})
}

// A subscriber that does not read holds nobody up, has little to read when it does,
// and learns that there was a change since it last read.
func TestASubscriberThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, server.Options{Transport: server.Transport{WriteTimeout: time.Hour}})
		tokens := d.tree(t)
		deaf, reader, w1 := d.actor(t, tokens["S1"]), d.actor(t, tokens["root"]), d.actor(t, tokens["W1"])
		deaf.resource("subscribe", "lease://run")
		reader.resource("subscribe", "lease://run")
		time.Sleep(5 * time.Millisecond) // so that no grant is at the instant of a look at the events
		began := time.Now()
		for i := range 300 {
			w1.mustCall("run_lease_acquire", fmt.Sprintf(`{"key":"k%d"}`, i))
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("300 grants took %v", took)
		}
		for _, subscriber := range []*peer{reader, deaf} {
			if got := len(subscriber.updates()); got != 2 {
				t.Errorf("%d updates wait to be read, and not one on its way and one to come", got)
			}
			if got := len(subscriber.updates()); got != 1 {
				t.Errorf("then there are %d updates, and not one for all of the 300 events", got)
			}
		}
		w1.mustCall("run_lease_acquire", `{"key":"last"}`)
		if got := len(deaf.updates()); got != 1 {
			t.Errorf("there are %d updates of the last change", got)
		}
	})
}

// Over HTTP updates come on a stream, also after the daemon has gone and come back.
func TestSubscriptionsOverHTTPOutlastTheDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeb(t, server.Options{})
		session := w.open(t)
		request := func(method, uri string) {
			t.Helper()
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"resources/%s","params":{"uri":%q}}`, uri, method, uri)
			if resp, body := w.do(t, "POST", body, session...); resp.StatusCode != 200 || strings.Contains(body, `"error"`) {
				t.Fatalf("%s %s: %d %s", method, uri, resp.StatusCode, body)
			}
		}
		for _, uri := range []string{"lease://run", "queue://jobs", "queue://gone"} {
			request("subscribe", uri)
		}
		request("unsubscribe", "queue://gone")
		stream := w.startStream(t, "GET", "", session...)
		told := func(want ...string) {
			t.Helper()
			for _, uri := range want {
				m, ok := stream.next(t)
				if !ok || m.Method != "notifications/resources/updated" || string(m.Params) != fmt.Sprintf(`{"uri":%q}`, uri) {
					t.Fatalf("it is told %s %s, and not of %s", m.Method, m.Params, uri)
				}
			}
		}
		other := w.dial(t, "other")
		other.mustCall("run_lease_acquire", `{"key":"k"}`)
		told("lease://run")

		w.stop()
		w.conns.Wait()
		w.ctx, w.stop = context.WithCancel(context.Background())
		w.Server = server.New(w.state, server.Options{})
		w.listen(t)
		stream = w.startStream(t, "GET", "", session...)
		told("lease://run", "queue://jobs") // either may have changed meanwhile
		w.dial(t, "third").mustCall("task_enqueue", `{"queue":"jobs","payload":1}`)
		told("queue://jobs")
	})
}
