package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// actor makes an actor of any run, and gives a program that is it.
func (p *program) actor(n dispatch.NewActor) *program {
	p.t.Helper()
	_, token, err := p.state.AddActor(p.t.Context(), n)
	if err != nil {
		p.t.Fatal(err)
	}
	return (&program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: p.t, book: p.book}).open()
}

// Marks of what is written in the tests of isolation: whoever may not read it never sees
// one, in whatever answer.
const (
	ofTheRun   = "secret-of-the-run"
	ofTheLayer = "secret-of-the-layer"
	ofThePeer  = "secret-of-the-peer"
)

// A neighbourhood is two runs, and in the first two sub-leads with workers. Everything in
// it that has an owner has a mark.
type neighbourhood struct {
	operator, root, one, worker, peer, two, stranger, foreign *program

	task, token, lease, layerLease string
}

func newNeighbourhood(t *testing.T) *neighbourhood {
	t.Helper()
	p := newProgram(t, newWeb(t, server.Options{Transport: server.Transport{HTTPIdle: 1000 * time.Hour}}))
	_, token, err := p.state.IssueAccess(t.Context(), "ops", dispatch.Operator, 0)
	if err != nil {
		t.Fatal(err)
	}
	as := func(run, name, parent string, role dispatch.Role) *program {
		return p.actor(dispatch.NewActor{Run: run, Name: name, Parent: parent, Role: role})
	}
	n := &neighbourhood{
		operator: &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: t, book: p.book},
		root:     as("a", "root", "", dispatch.Root),
		one:      as("a", "S1", "", dispatch.Sublead), two: as("a", "S2", "", dispatch.Sublead),
		worker: as("a", "W1", "S1", dispatch.Worker), peer: as("a", "W2", "S1", dispatch.Worker),
		stranger: as("a", "W3", "S2", dispatch.Worker), foreign: as("b", "root", "", dispatch.Root),
	}
	n.one.want(200, "PUT", "/store/ref/plan", `{"value":"`+ofTheLayer+`"}`)
	n.worker.want(200, "PUT", "/store/shared/note", `{"value":"`+ofTheLayer+`"}`)
	n.worker.want(200, "PUT", "/store/peer/self/own", `{"value":"`+ofThePeer+ofTheLayer+`"}`)
	n.layerLease = n.worker.want(201, "POST", "/layer/leases", `{"name":"output","ttl_secs":86400,"reason":"`+ofTheLayer+`"}`).text("lease_id")
	n.lease = n.worker.want(201, "POST", "/leases", `{"key":"port","ttl_secs":86400,"reason":"`+ofTheRun+`"}`).text("lease_id")
	n.task = n.one.want(201, "POST", "/queues/q/tasks", `{"payload":"`+ofTheRun+`"}`).text("task_id")
	claim := n.worker.want(200, "POST", "/tasks/next", `{"queues":["q"],"ttl_secs":86400}`)
	n.token = number(claim.object["tasks"].([]any)[0].(map[string]any)["token"])
	n.one.want(201, "POST", "/queues/"+ofTheRun+"/tasks", `{"payload":1}`)
	n.one.want(201, "POST", "/messages", `{"to":"S1→W1","text":"`+ofThePeer+ofTheRun+`"}`)
	return n
}

// all is everything that the operator sees, but for what is left of times.
func (n *neighbourhood) all() string {
	var text strings.Builder
	for _, run := range []string{"a"} {
		for _, path := range []string{"", "/leases", "/queues", "/tasks", "/tasks/" + n.task, "/store?layer=S1", "/store?layer=S2", "/store?layer=root"} {
			a := n.operator.want(200, "GET", "/runs/"+run+path, "")
			b, _ := json.Marshal(timeless(a.object))
			fmt.Fprintf(&text, "%s %s\n", path, b)
		}
	}
	return text.String()
}

// timeless is a value without what changes with time, and with requests.
func timeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			if strings.HasSuffix(name, "_ms") || strings.HasSuffix(name, "expires_at") || name == "sessions" {
				delete(v, name)
			} else {
				v[name] = timeless(v[name])
			}
		}
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	}
	return v
}

// A path of actors may be typed with slashes, wherever one is taken.
func TestPathsMayBeTypedWithSlashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNeighbourhood(t)
		for _, c := range []struct {
			by                 *program
			status             int
			method, path, body string
			says               string
		}{
			{n.root, 200, "GET", "/actors/S1%2FW1", "", `"path":"S1→W1"`},
			{n.root, 200, "POST", "/actors/wait", `{"actors":["S1/W1"],"mode":"any","wait_secs":0}`, `"path":"S1→W1"`},
			{n.root, 201, "POST", "/messages", `{"to":"S1/W1","text":"hello"}`, `"S1→W1"`},
			{n.worker, 200, "POST", "/leases/" + n.lease + "/offer", `{"to":"S1/W2"}`, `"offered_to":"S1→W2"`},
			{n.operator, 200, "GET", "/runs/a/events?actor=S1/W1&limit=1", "", `"path":"S1→W1"`},
			{n.operator, 201, "POST", "/runs/a/actors/token", `{"path":"S1/W2"}`, `"path":"S1→W2"`},
			{n.root, 200, "POST", "/leases/revoke", `{"scope":"run","key":"port","holder":"S1/W1","reason":"a test"}`, `"count":1`},
			{n.operator, 200, "POST", "/runs/a/actors/end", `{"path":"S1/W2"}`, `"path":"S1→W2"`},
			{n.root, 200, "POST", "/actors/S1%2FW1/cancel", `{"reason":"a test"}`, `"path":"S1→W1"`},
		} {
			if a := c.by.want(c.status, c.method, c.path, c.body); !strings.Contains(a.body, c.says) {
				t.Errorf("%s %s %s: %s", c.method, c.path, c.body, a.body)
			}
		}
	})
}

// What the other doors keep apart this one does: a layer from those who are not in it, a
// member's own entries from its peers, what a lead may from its workers, and a run from
// the tokens of another.
func TestAPIKeepsActorsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNeighbourhood(t)
		before := n.all()

		// In another layer the same names are other things.
		for _, p := range []*program{n.two, n.stranger, n.root, n.foreign} {
			p.want(404, "GET", "/store/ref/plan", "")
			p.want(404, "GET", "/store/shared/note", "")
			if list := p.want(200, "GET", "/store?glob=/**&values=true", ""); strings.Contains(list.body, ofTheLayer) {
				t.Errorf("another layer is listed: %s", list.body)
			}
			if list := p.want(200, "GET", "/leases?scope=layer", ""); strings.Contains(list.body, ofTheLayer) {
				t.Errorf("leases of another layer are listed: %s", list.body)
			}
			lease := p.want(201, "POST", "/layer/leases", `{"name":"output"}`).text("lease_id")
			p.want(200, "DELETE", "/leases/"+lease, "")
		}
		for _, layer := range []string{"S1", "root", "parent", "S1/W1"} {
			if a := n.stranger.ask("GET", "/store/shared/note?layer="+layer, ""); a.status < 400 || strings.Contains(a.body, ofTheLayer) {
				t.Errorf("layer %s is open to a worker of another: %d %s", layer, a.status, a.body)
			}
		}
		n.root.want(403, "GET", "/store/shared/note?layer=S1", "") // it was not given read_down

		// A member's own entries are its own and its lead's, however they are spelt.
		for _, path := range []string{"/peer/W1/own", "/peer/W1/%6fwn", "/peer/w1/own", "/peer/W1/../W1/own", "//peer/W1/own", "/peer//W1/own", "/peer/W2/../W1/own", "/peer/./W1/own"} {
			a := n.peer.ask("GET", "/store"+strings.ReplaceAll(path, "..", "%2e%2e"), "")
			if a.status < 300 || strings.Contains(a.body, ofThePeer) {
				t.Errorf("a peer reads %s: %d %s", path, a.status, a.body)
			}
		}
		for _, glob := range []string{"/**", "/peer/**", "/peer/*/own", "/peer/W?/*", "/{peer,shared}/**", "/peer/W1/own"} {
			if a := n.peer.ask("GET", "/store?values=true&glob="+escaped(glob), ""); strings.Contains(a.body, ofThePeer) {
				t.Errorf("a peer lists %s: %s", glob, a.body)
			}
		}
		n.peer.want(403, "PUT", "/store/peer/W1/own", `{"value":1}`)
		n.peer.want(403, "DELETE", "/store/peer/W1/own", "")
		n.peer.want(403, "PUT", "/store/ref/plan", `{"value":1}`)
		n.one.want(200, "GET", "/store/peer/W1/own", "")

		// A worker has no right of its lead's, nor another's claim, lease or session.
		for _, c := range [][3]string{
			{"POST", "/leases/revoke", `{"key":"port","scope":"run","reason":"mine"}`},
			{"POST", "/actors/W1/cancel", `{"reason":"mine"}`},
			{"GET", "/runs", ""},
			{"GET", "/runs/a/leases", ""},
			{"GET", "/tokens", ""},
			{"POST", "/runs/a/actors", `{"name":"new","role":"worker"}`},
			{"POST", "/runs/a/leases/revoke", `{"key":"port","scope":"run","reason":"mine"}`},
			{"POST", "/tasks/" + n.task + "/cancel", `{}`},
			{"POST", "/tokens", `{"name":"new","role":"operator"}`},
		} {
			n.peer.want(403, c[0], c[1], c[2])
			n.stranger.want(403, c[0], c[1], c[2])
		}
		for _, p := range []*program{n.peer, n.stranger, n.one, n.root} {
			p.want(409, "POST", "/leases/"+n.lease+"/renew", `{}`)
			p.want(410, "POST", "/tasks/"+n.task+"/complete", `{"token":`+n.token+`}`)
			p.want(410, "POST", "/tasks/"+n.task+"/heartbeat", `{"token":`+n.token+`}`)
			own := p.session
			p.session = n.worker.session
			p.want(404, "GET", "/session", "")
			p.want(404, "POST", "/leases", `{"key":"x"}`)
			p.session = own
		}

		// A run has nothing for the token of another.
		for _, c := range [][3]string{
			{"GET", "/tasks/" + n.task, ""},
			{"GET", "/tasks/" + n.task + "/result", ""},
			{"POST", "/tasks/" + n.task + "/cancel", `{}`},
			{"POST", "/tasks/" + n.task + "/complete", `{"token":` + n.token + `}`},
			{"POST", "/tasks/" + n.task + "/heartbeat", `{"token":` + n.token + `}`},
			{"POST", "/tasks/" + n.task + "/nack", `{"token":` + n.token + `,"reason":"mine"}`},
			{"GET", "/actors/S1", ""},
			{"POST", "/actors/S1/cancel", `{"reason":"mine"}`},
			{"POST", "/messages", `{"to":"S1→W1","text":"hello"}`},
			{"POST", "/messages", `{"to":"holder of port","text":"hello"}`},
		} {
			n.foreign.want(404, c[0], c[1], c[2])
		}
		n.foreign.want(409, "POST", "/leases/"+n.lease+"/renew", `{}`)
		for _, id := range []string{n.lease, n.layerLease} {
			n.foreign.want(409, "DELETE", "/leases/"+id, "")
		}
		mine := n.foreign.want(201, "POST", "/leases", `{"key":"port"}`).text("lease_id") // another port
		n.foreign.want(200, "DELETE", "/leases/"+mine, "")
		if a := n.foreign.want(200, "GET", "/queues", ""); strings.Contains(a.body, "in_progress") {
			t.Errorf("queues of another run: %s", a.body)
		}
		if after := n.all(); after != before {
			t.Errorf("the run was\n%s\nand is\n%s", before, after)
		}
	})
}

func escaped(text string) string {
	return strings.NewReplacer("?", "%3F", "{", "%7B", "}", "%7D").Replace(text)
}

// Whatever actors of another layer and of another run ask, with ids and names that they
// should not know, no answer has what is not theirs, and nothing changes.
func TestAPIKeepsActorsApartWhateverTheyAsk(t *testing.T) {
	seed := *apiSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-api.seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		n := newNeighbourhood(t)
		known := []any{n.task, n.lease, n.layerLease, json.Number(n.token), "port", "output", "S1", "W1", "W2", "S1→W1", "root", "a", "q", "/shared/note", "/ref/plan", "/peer/W1/own", "/peer/W2/x", "holder of port"}
		before := n.all()
		rnd := rand.New(rand.NewPCG(seed, 1))
		for _, c := range []struct {
			who    *program
			hidden []string
			ownRun bool
		}{
			{who: n.foreign, hidden: []string{ofTheRun, ofTheLayer, ofThePeer}},
			{who: n.stranger, hidden: []string{ofTheLayer, ofThePeer}, ownRun: true},
			{who: n.peer, hidden: []string{ofThePeer}, ownRun: true},
		} {
			p := &prober{program: c.who, rnd: rnd, seen: make(map[string]map[int]int), known: slices.Clone(known), tokens: slices.Repeat([]string{c.who.token}, 4)}
			p.readOperations()
			if c.ownRun { // what they do there is seen, and is theirs to do
				p.operations = slices.DeleteFunc(p.operations, func(o operation) bool { return o.method != http.MethodGet })
			}
			p.told = func(said string) {
				for _, mark := range c.hidden {
					if strings.Contains(said, mark) {
						t.Errorf("%s is told to another: %s", mark, said)
					}
				}
			}
			for range min(requests()/3, 1000) { // in less time than the leases last
				if p.probe(); t.Failed() {
					return
				}
			}
			statuses := make(map[int]int)
			for _, seen := range p.seen {
				for status, times := range seen {
					statuses[status] += times
				}
			}
			t.Logf("%v", statuses)
			if statuses[http.StatusOK] == 0 || statuses[http.StatusForbidden]+statuses[http.StatusNotFound] == 0 {
				t.Errorf("only %v was answered", slices.Sorted(maps.Keys(statuses)))
			}
		}
		time.Sleep(time.Second)
		if after := n.all(); after != before {
			t.Errorf("the run was\n%s\nand is\n%s", before, after)
		}
	})
}
