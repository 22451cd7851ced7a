package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/api"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A write is a call of a tool that writes. Its answer is lost, another party changes
// something, and the call is sent again.
type write struct {
	tool      string
	by        string // root, W1 or ops
	arguments func(w *onceWorld) args
	other     func(w *onceWorld)
}

type args = map[string]any

// An onceWorld has the parties of a write. Each actor has two sessions: the call is
// made in one, and what comes before it and after it in the other.
type onceWorld struct {
	t            *testing.T
	root, w1, w2 *program // the other sessions
	ops, boss    *program // two operators
	callers      map[string]*program
	tokens       []string // issued by another party

	lease, task string
	token       json.Number
}

func newOnceWorld(t *testing.T) *onceWorld {
	p := newProgram(t, newWeb(t, server.Options{})) // run r, with root and w
	w := &onceWorld{t: t, callers: make(map[string]*program)}
	operator := func(name string) *program {
		_, token, err := p.state.IssueAccess(t.Context(), name, dispatch.Operator, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w.with(p, token)
	}
	w.ops, w.boss = operator("ops"), operator("boss")
	w.callers["ops"] = w.ops
	for name, session := range map[string]**program{"root": &w.root, "W1": &w.w1, "W2": &w.w2} {
		var token string
		if name == "root" {
			token = w.ops.want(201, "POST", "/runs/r/actors/token", `{"path":"root"}`).text("token")
		} else {
			token = w.ops.want(201, "POST", "/runs/r/actors", `{"name":"`+name+`","role":"worker"}`).text("token")
		}
		*session, w.callers[name] = w.with(p, token).open(), w.with(p, token).open()
	}
	return w
}

func (w *onceWorld) with(p *program, token string) *program {
	return &program{web: &web{daemon: p.daemon, client: p.client, token: token}, t: w.t, book: p.book}
}

// acquire takes a lease of the run or of the layer for W1.
func (w *onceWorld) acquire(path, body string) {
	w.lease = w.w1.want(201, "POST", path, body).text("lease_id")
}

// claim has W1 claim a task of queue q, which has one attempt.
func (w *onceWorld) claim() {
	w.w1.want(201, "POST", "/queues/q/tasks", `{"payload":1,"max_attempts":1}`)
	w.task, w.token = w.claimed(w.w1)
}

func (w *onceWorld) claimed(p *program) (task string, token json.Number) {
	list := p.claim(60, 1)
	if len(list) != 1 {
		w.t.Fatalf("claimed %v", list)
	}
	return list[0].TaskID, list[0].Token
}

// die uses up the only attempt of the task.
func (w *onceWorld) die(p *program) {
	task, token := w.claimed(p)
	p.want(200, "POST", "/tasks/"+task+"/abandon", `{"token":`+token.String()+`}`)
}

// issued notes the token that another party was issued.
func (w *onceWorld) issued(a answer) { w.tokens = append(w.tokens, a.text("token")) }

func (w *onceWorld) dead() {
	w.w1.want(201, "POST", "/queues/q/tasks", `{"payload":1,"max_attempts":1}`)
	w.die(w.w1)
}

func (w *onceWorld) ofTask(more args) args {
	a := args{"task_id": w.task, "token": w.token}
	maps.Copy(a, more)
	return a
}

func nothing(*onceWorld) {}

// endedRun makes a run that has ended.
func (w *onceWorld) endedRun(p *program) {
	p.want(201, "POST", "/runs/old/actors", `{"name":"lead","role":"root"}`)
	p.want(200, "POST", "/runs/old/actors/end", `{"path":"root"}`)
}

// taken has the root revoke a lease and W2 acquire it.
func taken(path, body, revocation string) func(w *onceWorld) {
	return func(w *onceWorld) {
		w.root.want(200, "POST", "/leases/revoke", revocation)
		w.w2.want(201, "POST", path, body)
	}
}

const (
	revokeRun   = `{"scope":"run","key":"a","reason":"a test"}`
	revokeLayer = `{"scope":"layer","key":"a","reason":"a test"}`
)

func writes() []write {
	return []write{
		{"lease_acquire", "W1", func(*onceWorld) args { return args{"name": "a"} }, taken("/layer/leases", `{"name":"a"}`, revokeLayer)},
		{"run_lease_acquire", "W1", func(*onceWorld) args { return args{"key": "a"} }, taken("/leases", `{"key":"a"}`, revokeRun)},
		{"lease_acquire_many", "W1", func(*onceWorld) args {
			return args{"leases": []args{{"scope": "run", "key": "a"}, {"scope": "run", "key": "b"}}}
		}, taken("/leases", `{"key":"a"}`, revokeRun)},
		{"lease_renew", "W1", func(w *onceWorld) args {
			w.acquire("/leases", `{"key":"a"}`)
			return args{"lease_id": w.lease}
		}, func(w *onceWorld) {
			w.w1.want(410, "POST", "/leases/"+w.lease+"/renew", `{}`) // it did not know
			w.w1.want(200, "POST", "/leases/"+w.lease+"/renew", `{}`)
		}},
		{"lease_release", "W1", func(w *onceWorld) args {
			w.acquire("/layer/leases", `{"name":"a"}`)
			return args{"lease_id": w.lease}
		}, func(w *onceWorld) { w.w2.want(201, "POST", "/layer/leases", `{"name":"a"}`) }},
		{"run_lease_release", "W1", func(w *onceWorld) args {
			w.acquire("/leases", `{"key":"a"}`)
			return args{"lease_id": w.lease}
		}, func(w *onceWorld) { w.w2.want(201, "POST", "/leases", `{"key":"a"}`) }},
		{"lease_transfer", "W1", func(w *onceWorld) args {
			w.acquire("/leases", `{"key":"a"}`)
			return args{"lease_id": w.lease, "to": "W2"}
		}, func(w *onceWorld) { w.w1.want(200, "POST", "/leases/"+w.lease+"/offer", `{"to":""}`) }},
		{"lease_revoke", "root", func(w *onceWorld) args {
			w.acquire("/leases", `{"key":"a"}`)
			return args{"scope": "run", "key": "a", "reason": "a test"}
		}, func(w *onceWorld) { w.w2.want(201, "POST", "/leases", `{"key":"a"}`) }},

		{
			"kv_set", "W1", func(*onceWorld) args { return args{"path": "/shared/n", "value": 1} },
			func(w *onceWorld) { w.w2.want(200, "PUT", "/store/shared/n", `{"value":2}`) },
		},
		{
			"kv_cas", "W1", func(*onceWorld) args { return args{"path": "/shared/n", "value": 1, "expected_version": 0} },
			func(w *onceWorld) { w.w2.want(200, "DELETE", "/store/shared/n", "") },
		},
		{"kv_delete", "W1", func(w *onceWorld) args {
			w.w2.want(200, "PUT", "/store/shared/n", `{"value":1}`)
			return args{"path": "/shared/n"}
		}, func(w *onceWorld) { w.w2.want(200, "PUT", "/store/shared/n", `{"value":2}`) }},

		{"actor_cancel", "root", func(w *onceWorld) args {
			w.boss.want(201, "POST", "/runs/r/actors", `{"name":"W3","role":"worker"}`)
			return args{"actor": "W3", "reason": "a test"}
		}, func(w *onceWorld) {
			w.issued(w.boss.want(201, "POST", "/runs/r/actors", `{"name":"W3","role":"worker"}`))
		}},
		{
			"actor_report", "W1", func(*onceWorld) args { return args{"result": "first"} },
			func(w *onceWorld) { w.w1.want(200, "POST", "/report", `{"result":"second"}`) },
		},
		{
			"actor_message", "W1", func(*onceWorld) args { return args{"to": "W2", "text": "hello"} },
			func(w *onceWorld) { w.w2.want(200, "POST", "/messages/next", `{}`) },
		},
		{"actor_inbox", "W1", func(w *onceWorld) args {
			w.w2.want(201, "POST", "/messages", `{"to":"W1","text":"one"}`)
			return args{}
		}, func(w *onceWorld) { w.w2.want(201, "POST", "/messages", `{"to":"W1","text":"two"}`) }},

		{
			"task_enqueue", "W1", func(*onceWorld) args { return args{"queue": "q", "payload": 1} },
			func(w *onceWorld) { w.claimed(w.w2) },
		},
		{
			"task_enqueue_many", "W1", func(*onceWorld) args { return args{"tasks": []args{{"queue": "q", "payload": 1}}} },
			func(w *onceWorld) { w.claimed(w.w2) },
		},
		{"task_claim", "W1", func(w *onceWorld) args {
			w.task = w.w2.want(201, "POST", "/queues/q/tasks", `{"payload":1}`).text("task_id")
			w.w2.want(201, "POST", "/queues/q/tasks", `{"payload":2}`)
			return args{"queues": []string{"q"}, "ttl_secs": 60}
		}, func(w *onceWorld) { w.root.want(200, "POST", "/tasks/"+w.task+"/cancel", `{}`) }},
		{
			"task_heartbeat", "W1", func(w *onceWorld) args { w.claim(); return w.ofTask(nil) },
			func(w *onceWorld) { w.root.want(200, "POST", "/tasks/"+w.task+"/cancel", `{}`) },
		},
		{
			"task_submit", "W1", func(w *onceWorld) args { w.claim(); return w.ofTask(args{"status": "completed", "result": 1}) },
			func(w *onceWorld) { w.root.want(200, "POST", "/tasks/"+w.task+"/cancel", `{}`) },
		},
		{"task_submit_many", "W1", func(w *onceWorld) args {
			w.claim()
			return args{"tasks": []args{w.ofTask(args{"status": "failed", "error": 1})}}
		}, func(w *onceWorld) { w.root.want(200, "POST", "/queues/q/redrive", `{}`) }},
		{
			"task_nack", "W1", func(w *onceWorld) args { w.claim(); return w.ofTask(args{"reason": "a test", "delay_secs": 0}) },
			func(w *onceWorld) {
				w.root.want(200, "POST", "/queues/q/redrive", `{}`)
				w.claimed(w.w2)
			},
		},
		{
			"task_abandon", "W1", func(w *onceWorld) args { w.claim(); return w.ofTask(nil) },
			func(w *onceWorld) {
				w.root.want(200, "POST", "/queues/q/redrive", `{}`)
				w.claimed(w.w2)
			},
		},
		{"task_cancel", "root", func(w *onceWorld) args { w.claim(); return args{"task_id": w.task} }, nothing}, // it is final
		{"task_cancel", "root", func(w *onceWorld) args {
			w.claim()
			w.w1.want(200, "POST", "/tasks/"+w.task+"/abandon", `{"token":`+w.token.String()+`}`)
			return args{"task_id": w.task} // which is dead
		}, func(w *onceWorld) { w.root.want(200, "POST", "/queues/q/redrive", `{}`) }},
		{"queue_redrive", "root", func(w *onceWorld) args { w.dead(); return args{"queue": "q"} }, func(w *onceWorld) { w.die(w.w2) }},

		{
			"operator_actor_add", "ops", func(*onceWorld) args { return args{"run": "r", "name": "W3", "role": "worker"} },
			func(w *onceWorld) { w.issued(w.boss.want(201, "POST", "/runs/r/actors/token", `{"path":"W3"}`)) },
		},
		{
			"operator_actor_add", "ops", func(*onceWorld) args { return args{"run": "r", "name": "W3", "role": "worker"} },
			func(w *onceWorld) { w.boss.want(200, "POST", "/runs/r/actors/end", `{"path":"W3"}`) },
		},
		{"operator_actor_end", "ops", func(w *onceWorld) args {
			w.boss.want(201, "POST", "/runs/r/actors", `{"name":"W3","role":"worker"}`)
			return args{"run": "r", "path": "W3"}
		}, func(w *onceWorld) {
			w.issued(w.boss.want(201, "POST", "/runs/r/actors", `{"name":"W3","role":"worker"}`))
		}},
		{
			"operator_actor_token", "ops", func(*onceWorld) args { return args{"run": "r", "path": "W1"} },
			func(w *onceWorld) { w.issued(w.boss.want(201, "POST", "/runs/r/actors/token", `{"path":"W1"}`)) },
		},
		{
			"operator_run_remove", "ops", func(w *onceWorld) args { w.endedRun(w.boss); return args{"run": "old"} },
			func(w *onceWorld) { w.endedRun(w.boss) },
		},
		{"operator_lease_revoke", "ops", func(w *onceWorld) args {
			w.acquire("/leases", `{"key":"a"}`)
			return args{"run": "r", "scope": "run", "key": "a", "reason": "a test"}
		}, func(w *onceWorld) { w.w2.want(201, "POST", "/leases", `{"key":"a"}`) }},
		{"operator_task_cancel", "ops", func(w *onceWorld) args { w.claim(); return args{"run": "r", "task_id": w.task} }, nothing},
		{"operator_queue_redrive", "ops", func(w *onceWorld) args { w.dead(); return args{"run": "r", "queue": "q"} }, func(w *onceWorld) { w.die(w.w2) }},
		{
			"operator_queue_pause", "ops", func(w *onceWorld) args { w.claim(); return args{"run": "r", "queue": "q", "reason": "a test"} },
			func(w *onceWorld) { w.boss.want(200, "POST", "/runs/r/queues/q/resume", `{}`) },
		},
		{"operator_queue_resume", "ops", func(w *onceWorld) args {
			w.claim()
			w.boss.want(200, "POST", "/runs/r/queues/q/pause", `{"reason":"a test"}`)
			return args{"run": "r", "queue": "q"}
		}, func(w *onceWorld) { w.boss.want(200, "POST", "/runs/r/queues/q/pause", `{"reason":"a test"}`) }},
		{
			"operator_token_issue", "ops", func(*onceWorld) args { return args{"name": "x", "role": "reader"} },
			func(w *onceWorld) { w.issued(w.boss.want(201, "POST", "/tokens/x/rotate", `{}`)) },
		},
		{
			"operator_token_issue", "ops", func(*onceWorld) args { return args{"name": "x", "role": "reader"} },
			func(w *onceWorld) { w.boss.want(200, "DELETE", "/tokens/x", "") },
		},
		{"operator_token_rotate", "ops", func(w *onceWorld) args {
			w.boss.want(201, "POST", "/tokens", `{"name":"x","role":"reader"}`)
			return args{"name": "x"}
		}, func(w *onceWorld) { w.issued(w.boss.want(201, "POST", "/tokens/x/rotate", `{}`)) }},
		{"operator_token_revoke", "ops", func(w *onceWorld) args {
			w.boss.want(201, "POST", "/tokens", `{"name":"x","role":"reader"}`)
			return args{"name": "x"}
		}, func(w *onceWorld) { w.issued(w.boss.want(201, "POST", "/tokens", `{"name":"x","role":"reader"}`)) }},
	}
}

// sentOnce are the writing tools whose calls are not sent again, or that others cannot
// get in the way of.
var sentOnce = map[string]string{
	"spawn_sublead": "TestASpawnThatIsSentAgainIsCarriedOutOnce in package dispatch",
	"spawn_worker":  "TestASpawnThatIsSentAgainIsCarriedOutOnce in package dispatch",

	// A launcher whose connection is lost attaches again, and then asks anew.
	"operator_run_dispatch": "launcher", "operator_run_drain": "launcher", "operator_run_finish": "launcher",
	"operator_launch_join": "launcher", "operator_launch_leave": "launcher", "operator_launch_next": "launcher",
	"operator_launch_started": "launcher", "operator_launch_exited": "launcher",

	"operator_page_open": "each code is used once, and there may be several",
	"operator_backup":    "the directory must not exist",
}

// Every call that writes takes effect once, however often it is sent: what another party
// has done since then stays. It is sent over HTTP with an Idempotency-Key, and over two
// connections of a session with a mark.
func TestAWriteThatIsSentAgainUndoesNothingOfOthers(t *testing.T) {
	tried := make(map[string]bool)
	for n, c := range writes() {
		tried[c.tool] = true
		t.Run(fmt.Sprint(n, " ", c.tool), func(t *testing.T) {
			ways := 0
			for name, way := range map[string]func(w *onceWorld, c write, a args) (send func() (ok bool, text string)){
				"HTTP": (*onceWorld).overHTTP, "MCP": (*onceWorld).overMCP,
			} {
				synctest.Test(t, func(t *testing.T) {
					w := newOnceWorld(t)
					given := c.arguments(w)
					send := way(w, c, given)
					if send == nil {
						return
					}
					ways++
					if ok, text := send(); !ok {
						t.Fatalf("over %s: %s", name, text)
					}
					c.other(w)
					before := w.state()
					_, text := send()
					if after := w.state(); after != before {
						t.Errorf("over %s the call is sent again and answered %s\nthe state was\n%sand is\n%s", name, text, before, after)
					}
				})
			}
			if ways == 0 {
				t.Error("it was not sent at all")
			}
		})
	}
	for _, tool := range slices.Concat(tools.Agents(), tools.Programs(), tools.Operators(nil)) {
		if !tool.Effect.ReadOnly && !tried[tool.Name] && sentOnce[tool.Name] == "" {
			t.Errorf("%s was not tried", tool.Name)
		}
	}
}

// A call that writes and is sent again gets the answer that was lost, if nothing has
// happened since then: of a release, that it has released the lease.
func TestAWriteThatIsSentAgainGetsTheSameAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("makes the calls of TestAWriteThatIsSentAgainUndoesNothingOfOthers once more")
	}
	for n, c := range writes() {
		t.Run(fmt.Sprint(n, " ", c.tool), func(t *testing.T) {
			for name, way := range map[string]func(w *onceWorld, c write, a args) (send func() (ok bool, text string)){
				"HTTP": (*onceWorld).overHTTP, "MCP": (*onceWorld).overMCP,
			} {
				synctest.Test(t, func(t *testing.T) {
					w := newOnceWorld(t)
					send := way(w, c, c.arguments(w))
					if send == nil {
						return
					}
					_, first := send()
					_, again := send()
					if without := issuedToken.ReplaceAllString; without(again, "") != without(first, "") {
						t.Errorf("over %s the answer was\n%s\nand is\n%s", name, first, again)
					}
				})
			}
		})
	}
}

// A token is not stored, so a call for one that is sent again gets another.
var issuedToken = regexp.MustCompile(`"token":"[^"]*"`)

// overHTTP returns a function that sends the call with an Idempotency-Key, or nil if the
// API does not have the tool.
func (w *onceWorld) overHTTP(c write, given args) (send func() (ok bool, text string)) {
	method, path, body, header := routeOf(c.tool, given)
	if method == "" {
		return nil
	}
	header = append(header, "Idempotency-Key", "the call")
	return func() (bool, string) {
		a := w.callers[c.by].ask(method, path, body, header...)
		return a.status < 300, fmt.Sprint(a.status, " ", a.body)
	}
}

// overMCP returns a function that sends the call with a mark, each time over another
// connection of the same session, or nil for an operator, whose sessions end with their
// connections.
func (w *onceWorld) overMCP(c write, given args) (send func() (ok bool, text string)) {
	caller := w.callers[c.by]
	if caller.session == "" || strings.HasSuffix(c.tool, "_many") && c.tool != "lease_acquire_many" { // only for programs
		return nil
	}
	arguments, _ := json.Marshal(given)
	hello := server.Hello{Token: caller.token}
	id := 0
	return func() (bool, string) {
		p := caller.pipe(w.t)
		p.greet(hello)
		hello = server.Hello{Handle: p.welcome.Handle}
		id++
		p.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"leasehold/call":"the call","leasehold/resent":%t}}}`, id, c.tool, arguments, id > 1)
		m := p.receive()
		return m.Error == nil && !m.Result.IsError, m.text()
	}
}

var inPath = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// routeOf returns the request of the API for a call of a tool.
func routeOf(tool string, given args) (method, path, body string, header []string) {
	for _, r := range api.Routes() {
		rest := maps.Clone(given)
		version, conditional := rest["expected_version"]
		if conditional = conditional && r.Unless != nil && r.Unless.Name == tool; r.Tool.Name != tool && !conditional {
			continue
		}
		fits := true
		for name, value := range r.Fixed {
			b, _ := json.Marshal(rest[name])
			fits = fits && string(b) == string(value)
			delete(rest, name)
		}
		if !fits {
			continue
		}
		if conditional {
			delete(rest, "expected_version")
			header = []string{"If-None-Match", "*"}
			if version != 0 {
				header = []string{"If-Match", fmt.Sprintf(`"%v"`, version)}
			}
		}
		path = inPath.ReplaceAllStringFunc(r.Path, func(in string) string {
			name := strings.Trim(in, "{.}")
			value := fmt.Sprint(rest[name])
			delete(rest, name)
			if strings.HasSuffix(in, "...}") {
				return strings.TrimPrefix(value, "/")
			}
			return url.PathEscape(value)
		})
		if r.Method == "POST" || r.Method == "PUT" {
			b, _ := json.Marshal(rest)
			return r.Method, path, string(b), header
		}
		return r.Method, path, "", header
	}
	return "", "", "", nil
}

var remaining = regexp.MustCompile(`"(expires_in_ms|expires_at|held_ms|waiting_ms)":("[^"]*"|[0-9]+),?`)

// state is all that operators see of the run, whether the tokens are valid that others
// were issued, and what W1 has reported. Refused writes are left out.
func (w *onceWorld) state() string {
	var b strings.Builder
	for _, token := range w.tokens {
		_, status := w.read(w.with(w.ops, token), "/leases")
		fmt.Fprintln(&b, "a token of another party:", status)
	}
	for _, path := range []string{
		"/tokens", "/runs", "/runs/r/leases", "/runs/r/store?layer=root", "/runs/r/queues", "/runs/r/tasks",
		"/runs/r/tasks?state=dead", "/runs/r/tasks?state=cancelled", "/runs/r/tasks?state=completed", "/runs/r/tasks?state=failed",
	} {
		body, status := w.read(w.boss, path)
		fmt.Fprintln(&b, path, status, remaining.ReplaceAllString(string(body), ""))
	}
	var w1 struct{ Result json.RawMessage }
	var list struct{ Events []json.RawMessage }
	actor, _ := w.read(w.root, "/actors/W1")
	events, _ := w.read(w.boss, "/runs/r/events")
	if err := errors.Join(json.Unmarshal(actor, &w1), json.Unmarshal(events, &list)); err != nil {
		w.t.Fatal(err)
	}
	fmt.Fprintln(&b, "W1 reports", string(w1.Result))
	for _, e := range list.Events {
		if !strings.Contains(string(e), `"write_refused"`) {
			fmt.Fprintln(&b, string(e))
		}
	}
	return b.String()
}

// read is ask without a look into the document, which takes long.
func (w *onceWorld) read(by *program, path string) (body []byte, status int) {
	resp, err := by.client.Do(by.request(w.t.Context(), "GET", path, ""))
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		w.t.Fatal(err)
	}
	return body, resp.StatusCode
}
