package tools_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A house is a daemon's packages in a bubble of fake time, called through MCP.
type house struct {
	t      *testing.T
	ctx    context.Context
	state  *dispatch.State
	server *server.Server
	output map[string]*jsonschema.Resolved
	wire   map[string]*jsonschema.Resolved // as clients see it, which includes refusals

	mu     sync.Mutex
	called map[string]bool // the tools that have answered
	dials  []func()
}

func inHouse(t *testing.T, story func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eng, err := pebble.Open(pebble.Options{Dir: "state", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		state, err := dispatch.Open(t.Context(), eng, dispatch.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		tended := make(chan error)
		go func() { tended <- state.Tend(ctx) }()
		h := &house{t: t, ctx: ctx, state: state, server: server.New(state, server.Options{}), output: make(map[string]*jsonschema.Resolved), wire: make(map[string]*jsonschema.Resolved), called: make(map[string]bool)}
		defer func() { // or what a failure leaves would end the other tests too
			for _, hangUp := range h.dials {
				hangUp()
			}
			synctest.Wait()
			if err := state.Check(ctx); err != nil {
				t.Error(err)
			}
			stop()
			if err := errors.Join(<-tended, eng.Check(), eng.Close()); err != nil {
				t.Error(err)
			}
		}()
		for _, tool := range slices.Concat(tools.Agents(), tools.Programs(), tools.Operators(state)) {
			if h.output[tool.Name], err = tool.Output().Resolve(nil); err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
			var wire jsonschema.Schema
			if err := json.Unmarshal(tool.Definition(true).RawOutputSchema, &wire); err != nil {
				t.Fatal(err)
			}
			if h.wire[tool.Name], err = wire.Resolve(nil); err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
		}
		story(t, h)
	})
}

// A caller is an MCP session. Each answer to it is checked against its schema.
type caller struct {
	*client.Client
	h *house
}

func (h *house) connect(hello server.Hello) caller {
	h.t.Helper()
	near, far := net.Pipe()
	go h.server.ServeConn(h.ctx, far, process.Peer{Transport: "unix"})
	c, err := client.Connect(h.ctx, near, hello, "test", "")
	if err != nil {
		h.t.Fatal(err)
	}
	h.dials = append(h.dials, func() { c.Close() })
	return caller{c, h}
}

func (h *house) actor(role dispatch.Role, parent, name string) caller {
	h.t.Helper()
	_, token, err := h.state.AddActor(h.ctx, dispatch.NewActor{Run: "r", Name: name, Role: role, Parent: parent})
	if err != nil {
		h.t.Fatal(err)
	}
	return h.connect(server.Hello{Token: token})
}

type args = map[string]any

func (c caller) call(tool string, a args) (map[string]any, *client.Refusal) {
	c.h.t.Helper()
	answer, err := c.Call(c.h.ctx, tool, a)
	var refusal *client.Refusal
	if err != nil && !errors.As(err, &refusal) {
		c.h.t.Fatalf("%s %v: %v", tool, a, err)
	}
	var object map[string]any
	if err := json.Unmarshal(answer.Object, &object); err != nil {
		c.h.t.Fatalf("%s: %v", tool, err)
	}
	c.h.checkText(tool, object, answer.Text)
	c.h.checkOrder(tool, answer.Object)
	if err := c.h.wire[tool].Validate(object); err != nil {
		c.h.t.Errorf("%s answers %s, which is not of the schema that clients have: %v", tool, answer.Object, err)
	}
	if refusal != nil {
		return nil, refusal
	}
	if err := c.h.output[tool].Validate(object); err != nil {
		c.h.t.Errorf("%s answers %s, which is not of its schema: %v", tool, answer.Object, err)
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.called[tool] = true
	return object, nil
}

func (c caller) ok(tool string, a args) map[string]any {
	c.h.t.Helper()
	object, refusal := c.call(tool, a)
	if refusal != nil {
		c.h.t.Fatalf("%s %v: %s %s", tool, a, refusal.Code, refusal.Message)
	}
	return object
}

func (c caller) refused(code, tool string, a args) map[string]any {
	c.h.t.Helper()
	object, refusal := c.call(tool, a)
	if refusal == nil {
		c.h.t.Fatalf("%s %v answers %v, want it refused with %s", tool, a, object, code)
	}
	if refusal.Code != code {
		c.h.t.Fatalf("%s %v is refused with %s (%s), want %s", tool, a, refusal.Code, refusal.Message, code)
	}
	var data map[string]any
	if err := json.Unmarshal(refusal.Object, &data); err != nil {
		c.h.t.Fatal(err)
	}
	return data
}

// Every answer of every tool matches its schema; caller.call checks it.
func TestEveryToolAnswersByItsSchema(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		op := h.connect(server.Hello{Operator: true})
		made := op.ok("operator_actor_add", args{"run": "r", "name": "boss", "role": "root", "max_depth": 2})
		root := h.connect(server.Hello{Token: made["token"].(string)})
		worker := h.actor(dispatch.Worker, "", "W1")

		l := root.ok("lease_acquire", args{"name": "x", "ttl_secs": 2.5, "request_id": "1"})
		if l["expires_in_ms"] != 2500.0 || l["scope"] != "layer" || l["name"] != "x" {
			t.Errorf("grant: %v", l)
		}
		g := root.ok("run_lease_acquire", args{"key": "x y/z", "keep_alive": true})
		if again := root.ok("run_lease_acquire", args{"key": "x y/z"}); again["reentrant"] != true || again["lease_id"] != g["lease_id"] {
			t.Errorf("again: %v", again)
		}
		held := worker.refused("LEASE_HELD", "run_lease_acquire", args{"key": "x y/z"})
		if held["scope"] != "run" || held["key"] != "x y/z" || held["waiters"] != 0.0 || held["expires_in_ms"] != 60000.0 {
			t.Errorf("refusal: %v", held)
		}
		timeout := worker.refused("WAIT_TIMEOUT", "lease_acquire", args{"name": "/leases/x", "wait_secs": 1})
		if timeout["position"] != 1.0 || timeout["ticket"] == nil || timeout["key"] != "x" {
			t.Errorf("time-out: %v", timeout)
		}
		for _, scope := range []string{"layer", "run", "all"} {
			list := worker.ok("lease_list", args{"scope": scope})
			for _, entry := range list["leases"].([]any) {
				if entry.(map[string]any)["lease_id"] != nil {
					t.Errorf("another's lease_id is shown: %v", entry)
				}
			}
		}
		if e := worker.ok("kv_get", args{"path": "/leases/x"})["entry"].(map[string]any); strings.Contains(fmt.Sprint(e), l["lease_id"].(string)) {
			t.Errorf("the store shows a lease_id: %v", e)
		}
		worker.ok("kv_list", args{"glob": "/leases/**", "values": true})
		root.ok("lease_renew", args{"lease_id": l["lease_id"], "ttl_secs": 10})
		worker.refused("NOT_HOLDER", "lease_renew", args{"lease_id": l["lease_id"]})
		worker.refused("NOT_HOLDER", "run_lease_release", args{"lease_id": g["lease_id"]})
		root.ok("lease_release", args{"lease_id": l["lease_id"]})
		root.ok("run_lease_release", args{"lease_id": g["lease_id"]})
		if r := root.ok("run_lease_release", args{"lease_id": g["lease_id"]}); r["released"] != false || r["reason"] == "" {
			t.Errorf("second release: %v", r)
		}
		root.refused("REQUEST_ID_REUSED", "lease_acquire", args{"name": "y", "request_id": "1"})

		v := root.ok("kv_set", args{"path": "/ref/plan", "value": args{"a": []any{1, nil}}})["version"]
		root.ok("kv_cas", args{"path": "/ref/plan", "expected_version": v, "value": nil})
		if m := root.refused("VERSION_MISMATCH", "kv_cas", args{"path": "/ref/plan", "expected_version": v, "value": 1}); m["version"] != 2.0 {
			t.Errorf("mismatch: %v", m)
		}
		root.refused("VERSION_MISMATCH", "kv_cas", args{"path": "/ref/plan", "expected_version": 0, "value": 1})
		if e := worker.ok("kv_get", args{"path": "/ref/plan"})["entry"].(map[string]any); e["version"] != 2.0 || e["value"] != nil || e["updated_by"] != "root" {
			t.Errorf("entry: %v", e)
		}
		if e := worker.ok("kv_wait", args{"path": "/shared/none", "wait_secs": 1}); e["entry"] != nil {
			t.Errorf("waited for: %v", e)
		}
		worker.ok("kv_wait", args{"path": "/ref/plan", "min_version": 2, "wait_secs": 1})
		worker.refused("FORBIDDEN", "kv_set", args{"path": "/ref/plan", "value": 1})
		worker.refused("FORBIDDEN", "kv_set", args{"path": "/leases/x", "value": 1})
		root.ok("kv_delete", args{"path": "/ref/plan", "expected_version": 2})
		worker.refused("LIMIT", "kv_set", args{"path": "/shared/big", "value": strings.Repeat("x", 1<<20)})
		worker.ok("kv_list", args{"glob": "/**"})

		id := root.ok("task_enqueue", args{"queue": "q", "payload": args{"n": 1}, "idempotency_key": "k", "max_attempts": 1})["task_id"]
		root.refused("REQUEST_ID_REUSED", "task_enqueue", args{"queue": "q", "payload": 2, "idempotency_key": "k"})
		worker.refused("FORBIDDEN", "task_cancel", args{"task_id": id})
		root.refused("INVALID_ARGUMENT", "task_enqueue", args{"queue": "q", "payload": 2, "run_at": "tomorrow"})
		worker.ok("task_result", args{"task_id": id, "wait_secs": 1})
		got := worker.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 60})["tasks"].([]any)[0].(map[string]any)
		if got["task_id"] != id || got["attempt"] != 1.0 || got["expires_in_ms"] != 60000.0 {
			t.Errorf("claimed: %v", got)
		}
		worker.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 60, "wait_secs": 1})
		mine := args{"task_id": id, "token": got["token"]}
		worker.ok("task_heartbeat", mine)
		if seen := fmt.Sprint(root.ok("task_get", args{"task_id": id})); strings.Contains(seen, "token") {
			t.Errorf("task_get tells the token: %s", seen)
		}
		root.refused("STALE_TOKEN", "task_submit", args{"task_id": id, "token": got["token"], "status": "completed"})
		worker.refused("INVALID_ARGUMENT", "task_submit", args{"task_id": id, "token": got["token"], "status": "failed", "result": 1})
		worker.ok("task_nack", args{"task_id": id, "token": got["token"], "reason": "no luck"})
		if stale := worker.refused("STALE_TOKEN", "task_heartbeat", mine); stale["state"] != "dead" {
			t.Errorf("stale: %v", stale)
		}
		root.ok("queue_dead", args{"queue": "q"})
		root.ok("queue_redrive", args{"queue": "q", "task_ids": []any{id}})
		got = worker.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 60})["tasks"].([]any)[0].(map[string]any)
		worker.ok("task_abandon", args{"task_id": id, "token": got["token"]})
		root.ok("queue_redrive", args{"queue": "q"})
		got = worker.ok("task_claim", args{"queues": []string{"q"}, "ttl_secs": 60})["tasks"].([]any)[0].(map[string]any)
		worker.ok("task_submit", args{"task_id": id, "token": got["token"], "status": "failed", "error": "disk full"})
		if r := root.ok("task_result", args{"task_id": id}); r["state"] != "failed" || r["error"] != "disk full" {
			t.Errorf("result: %v", r)
		}
		root.ok("task_cancel", args{"task_id": id})
		root.refused("NOT_FOUND", "task_get", args{"task_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})
		root.ok("queue_stats", nil)
		for _, tool := range []string{"queue_stats", "queue_dead", "queue_redrive"} {
			root.refused("NOT_FOUND", tool, args{"queue": "nobodys"})
		}

		asked := root.ok("actor_message", args{"to": "W1", "text": "how far are you?"})
		read := worker.ok("actor_inbox", nil)["messages"].([]any)[0].(map[string]any)
		if read["from"] != "root" || read["text"] != "how far are you?" || read["message_id"] != asked["message_id"] {
			t.Errorf("read: %v", read)
		}
		worker.ok("actor_message", args{"to": "root", "text": "done", "reply_to": read["message_id"]})
		told := root.ok("lease_list", nil)["notices"].([]any)[0].(map[string]any)
		if m := told["message"].(map[string]any); told["code"] != "MESSAGE" || m["from"] != "W1" || m["text"] != "done" || m["reply_to"] != asked["message_id"] {
			t.Errorf("told: %v", told)
		}
		root.refused("NOT_FOUND", "actor_message", args{"to": "W9", "text": "x"})
		root.refused("LIMIT", "actor_message", args{"to": "W1", "text": strings.Repeat("x", 16<<10+1)})

		if list := worker.ok("actor_list", nil)["actors"].([]any); len(list) != 2 {
			t.Errorf("actors: %v", list)
		}
		op.ok("operator_tree", args{})
		op.ok("operator_leases", args{"run": "r"})
		worker.ok("lease_acquire_many", args{"leases": []args{{"scope": "run", "key": "m", "mode": "shared"}, {"scope": "layer", "path": "src/**"}}})
		worker.ok("lease_check", args{"scope": "run", "key": "x", "token": 1})
		if list := op.ok("operator_events", args{"run": "r"})["events"].([]any); len(list) == 0 {
			t.Error("nothing is on record")
		}
		op.ok("operator_lease_check", args{"run": "r", "scope": "layer", "key": "x", "token": 1})
		root.ok("lease_transfer", args{"lease_id": root.ok("run_lease_acquire", args{"key": "offered"})["lease_id"], "to": "W1"})
		root.ok("lease_revoke", args{"scope": "run", "key": "x", "reason": "tests"})
		op.ok("operator_lease_revoke", args{"run": "r", "scope": "layer", "key": "x", "reason": "tests"})
		op.ok("operator_kv", args{"run": "r"})
		op.refused("NOT_FOUND", "operator_kv", args{"run": "none"})
		if q := op.ok("operator_queue_stats", args{"run": "r"})["queues"].([]any)[0].(map[string]any); q["queue"] != "q" || q["failed"] != 1.0 {
			t.Errorf("queue: %v", q)
		}
		if list := op.ok("operator_queue_list", args{"run": "r"})["tasks"].([]any); len(list) != 0 {
			t.Errorf("live tasks: %v", list)
		}
		if list := op.ok("operator_queue_list", args{"run": "r", "queue": "q", "state": "failed"})["tasks"].([]any); len(list) != 1 {
			t.Errorf("failed tasks: %v", list)
		}
		if seen := fmt.Sprint(op.ok("operator_task", args{"run": "r", "task_id": id})); strings.Contains(seen, "token") || !strings.Contains(seen, "disk full") {
			t.Errorf("operator_task tells: %s", seen)
		}
		next := root.ok("task_enqueue", args{"queue": "q", "payload": 2})["task_id"]
		if s := op.ok("operator_task_cancel", args{"run": "r", "task_id": next}); s["state"] != "cancelled" {
			t.Errorf("cancelled: %v", s)
		}
		op.ok("operator_queue_redrive", args{"run": "r", "queue": "q"})
		op.refused("NOT_FOUND", "operator_queue_stats", args{"run": "none"})
		op.refused("NOT_FOUND", "operator_task", args{"run": "r", "task_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})
		op.ok("operator_queue_pause", args{"run": "r", "queue": "q", "reason": "they fail"})
		op.ok("operator_queue_resume", args{"run": "r", "queue": "q"})
		op.refused("NOT_FOUND", "operator_queue_pause", args{"run": "r", "queue": "none", "reason": "they fail"})
		op.ok("operator_clocks", args{})
		op.ok("operator_watch", args{})
		op.ok("operator_watch", args{"wait_secs": 1})
		launchedRun(t, op)
		op.ok("operator_actor_token", args{"run": "r", "path": "W1"})
		op.ok("operator_token_issue", args{"name": "grafana", "role": "reader", "ttl_secs": 60})
		op.refused("INVALID_ARGUMENT", "operator_token_issue", args{"name": "grafana", "role": "reader"})
		op.ok("operator_token_rotate", args{"name": "grafana"})
		if list := op.ok("operator_token_list", args{})["tokens"].([]any); len(list) != 1 {
			t.Errorf("tokens: %v", list)
		}
		programs := worker.ok("task_enqueue_many", args{"tasks": []args{{"queue": "many", "payload": 1}, {"queue": "many", "payload": 2}}})["tasks"].([]any)
		worker.ok("task_list", args{"queue": "many"})
		worker.ok("task_submit_many", args{"tasks": []args{{"task_id": programs[0].(args)["task_id"], "token": 1, "status": "completed"}}})
		worker.ok("lease_get", args{"scope": "run", "key": "nobody's"})
		worker.ok("lease_history", args{"scope": "run", "key": "nobody's"})
		mineByID := args{"lease_id": worker.ok("run_lease_acquire", args{"key": "by id"})["lease_id"]}
		worker.ok("lease_get_by_id", mineByID)
		worker.ok("lease_history_by_id", mineByID)
		op.ok("operator_token_revoke", args{"name": "grafana"})
		op.refused("NOT_FOUND", "operator_token_revoke", args{"name": "grafana"})
		op.ok("operator_actor_end", args{"run": "r", "path": "W1"})
		if _, err := worker.Call(h.ctx, "lease_list", nil); err == nil {
			t.Error("an ended actor is served")
		}
		op.ok("operator_actor_end", args{"run": "r", "path": "root"})
		op.ok("operator_run_remove", args{"run": "r"})
		for name := range h.output {
			if !h.called[name] {
				t.Errorf("%s was never answered", name)
			}
		}
	})
}

func TestNoticesAreInTheOrderInWhichTheyCameAbout(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root, worker := h.actor(dispatch.Root, "", "boss"), h.actor(dispatch.Worker, "", "W1")
		worker.ok("lease_acquire", args{"name": "second", "ttl_secs": 4})
		worker.ok("lease_acquire", args{"name": "first", "ttl_secs": 1})
		time.Sleep(2 * time.Second)
		root.ok("actor_message", args{"to": "W1", "text": "between them"})
		time.Sleep(3 * time.Second)
		var got []any
		for _, n := range worker.ok("lease_list", nil)["notices"].([]any) {
			got = append(got, cmp.Or(n.(map[string]any)["name"], n.(map[string]any)["code"]))
		}
		if fmt.Sprint(got) != "[first MESSAGE second]" {
			t.Errorf("told in the order %v", got)
		}
	})
}

func TestALossIsToldInTheNextAnswerWhateverItIs(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		l := root.ok("lease_acquire", args{"name": "x", "ttl_secs": 1})
		time.Sleep(2 * time.Second)
		told := root.refused("NOT_HOLDER", "lease_renew", args{"lease_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})["notices"].([]any)
		if n := told[0].(map[string]any); n["lease_id"] != l["lease_id"] || n["reason"] != "expired" || n["name"] != "x" {
			t.Errorf("notice: %v", n)
		}
		if again := root.ok("lease_list", nil); again["notices"] != nil {
			t.Errorf("told twice: %v", again)
		}
		// An expired lease can be renewed until another session takes it.
		root.ok("lease_renew", args{"lease_id": l["lease_id"]})
		time.Sleep(2 * time.Second)
		h.actor(dispatch.Worker, "", "W1").ok("lease_acquire", args{"name": "x"})
		if lost := root.refused("LEASE_LOST", "lease_renew", args{"lease_id": l["lease_id"]}); lost["reason"] != "expired" || lost["at"] == nil || lost["superseded_by"] != "W1" || lost["notices"] != nil {
			t.Errorf("lost: %v", lost) // the refusal tells it, so no notice does
		}
		if again := root.ok("lease_list", nil); again["notices"] != nil {
			t.Errorf("told again: %v", again)
		}
	})
}

// However much an agent has lost, its next answer has twenty of the losses, in the order in
// which they came about. It says once what to do about them, and what shows the rest.
func TestManyLossesAreToldInLittle(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		for i := range 100 {
			root.ok("run_lease_acquire", args{"key": fmt.Sprintf("k%02d", i), "ttl_secs": 1 + i})
		}
		time.Sleep(200 * time.Second)
		answer, err := root.Call(h.ctx, "lease_list", nil)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(answer.Text, "\n")
		if n := strings.Count(line, "you lost lease"); n != dispatch.MaxNotices || !strings.Contains(line, `"k00" (expired); you lost lease "k01"`) {
			t.Errorf("told of %d: %s", n, line)
		}
		if want := `"k19" (expired); acquire what you lost again before you touch what it guards; there is more to tell of 80 leases; the next answers have it, and lease_list shows what you hold`; !strings.HasSuffix(line, want) || strings.Count(line, "guards") != 1 {
			t.Errorf("told: %s\nwant %s at its end", line, want)
		}
	})
}

// Whoever lost a lease and has acquired it again is not told that somebody else has it.
func TestALeaseThatWasAcquiredAgainIsNotHeldBySomebodyElse(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root, worker := h.actor(dispatch.Root, "", "boss"), h.actor(dispatch.Worker, "", "W1")
		for i, again := range []string{"one", "another"} { // of the worker's parties
			key := fmt.Sprint("x", i)
			first := worker.ok("run_lease_acquire", args{"key": key, "as": "one"})
			root.ok("lease_revoke", args{"scope": "run", "key": key, "reason": "r"})
			next := worker.ok("run_lease_acquire", args{"key": key, "as": again})
			told := next["notices"].([]any)[0].(map[string]any)
			lost := worker.refused("LEASE_LOST", "lease_renew", args{"lease_id": first["lease_id"], "as": "one"})
			for _, n := range []map[string]any{told, lost} {
				if again == "one" && (n["superseded_by"] != nil || n["regained_token"] != next["token"]) || again != "one" && (n["superseded_by"] != "W1" || n["regained_token"] != nil) {
					t.Errorf("acquired again as %q, told: %v", again, n)
				}
			}
			if text := fmt.Sprint(lost["message"]); strings.Contains(text, "hold it again, with token") != (again == "one") {
				t.Errorf("acquired again as %q, refused: %s", again, text)
			}
		}
	})
}

// Decoding enforces what the schema of an argument says. A value outside the bounds is
// refused with the argument's name, and the bounds themselves are accepted. So is null for
// an argument that may be left out.
func TestSchemasAndDecodingAgree(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		op := h.connect(server.Hello{Operator: true})
		root := h.actor(dispatch.Root, "", "boss")
		for _, tool := range slices.Concat(tools.Agents(), tools.Programs(), tools.Operators(h.state)) {
			c := root
			if strings.HasPrefix(tool.Name, "operator_") {
				c = op
			}
			valid, input := make(args), tool.Input()
			for name, s := range input.Properties {
				if slices.Contains(input.Required, name) {
					valid[name] = example(s)
				}
			}
			refusedFor := func(name string, value any) {
				t.Helper()
				if data := refusal(c, tool.Name, valid, name, value); data["argument"] != name || !strings.HasPrefix(data["message"].(string), name+" ") {
					t.Errorf("%s %s=%v is refused as %v", tool.Name, name, value, data)
				}
			}
			refusedFor("no_such_argument", 1)
			for name, s := range input.Properties {
				for _, value := range outside(s) {
					refusedFor(name, value)
				}
				if s.Type == "array" && s.Items.Type == "object" {
					for _, list := range listsWithOneWrong(s.Items) {
						if data := refusal(c, tool.Name, valid, name, list.of); !strings.HasPrefix(data["message"].(string), name+"[1]: "+list.wrong+" ") {
							t.Errorf("%s %s=%v is refused as %v", tool.Name, name, list.of, data)
						}
					}
				}
				for _, value := range bounds(s) {
					a := maps.Clone(valid)
					a[name] = value
					if _, refusal := c.call(tool.Name, a); refusal != nil && refusal.Code == "INVALID_ARGUMENT" && strings.Contains(refusal.Message, "must be from") {
						t.Errorf("%s %s=%v is within its bounds and refused: %s", tool.Name, name, value, refusal.Message)
					}
				}
				a := maps.Clone(valid)
				delete(a, name)
				if !slices.Contains(input.Required, name) {
					_, without := c.call(tool.Name, a)
					a[name] = nil
					_, null := c.call(tool.Name, a)
					// Without these the call does more.
					limits := name == "expected_version" || name == "task_ids" || name == "holder" && strings.HasSuffix(tool.Name, "lease_revoke")
					refused := null != nil && strings.HasPrefix(null.Message, name+" ") && (without == nil || without.Message != null.Message)
					if s.Type != "" && refused != limits {
						t.Errorf("%s %s=null: %+v", tool.Name, name, null)
					}
					continue
				}
				if data := c.refused("INVALID_ARGUMENT", tool.Name, a); data["argument"] != name {
					t.Errorf("%s without %s is refused as %v", tool.Name, name, data)
				}
			}
		}
	})
}

// Some clients send the JSON text of an argument in a string, whatever its model writes,
// and null for each argument that they leave out.
func TestArgumentsMayComeAsText(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		w := h.actor(dispatch.Root, "", "boss")
		grant := w.ok("run_lease_acquire", args{"key": "k", "ttl_secs": "90", "wait_secs": " 5 ", "keep_alive": "true", "mode": nil, "ticket": nil, "path": nil})
		if grant["expires_in_ms"] != 90000. || grant["keep_alive"] != true || grant["mode"] != "exclusive" {
			t.Errorf("granted %v", grant)
		}
		many := w.ok("lease_acquire_many", args{"leases": `[{"scope":"run","key":"k2","path":null},{"scope":"layer","key":"k3","mode":null}]`})
		if got := many["leases"].([]any); len(got) != 2 {
			t.Errorf("granted %v", got)
		}
		// Any JSON may be a string, or null.
		for _, value := range []any{"5", `{"a":1}`, nil} {
			w.ok("kv_set", args{"path": "/shared/x", "value": value, "layer": nil})
			if got := w.ok("kv_get", args{"path": "/shared/x"})["entry"].(map[string]any)["value"]; got != value {
				t.Errorf("value %#v became %#v", value, got)
			}
		}
		w.ok("task_enqueue", args{"queue": "q", "payload": 1, "priority": "3", "require_leases": nil})
		claims := w.ok("task_claim", args{"queues": `["q"]`, "ttl_secs": "60"})["tasks"].([]any)
		task := claims[0].(map[string]any)
		w.ok("task_submit", args{"task_id": task["task_id"], "token": fmt.Sprint(task["token"]), "status": "completed", "result": 1, "error": nil})

		// Without these the call would do more than its sender may have meant.
		w.refused("INVALID_ARGUMENT", "kv_delete", args{"path": "/shared/x", "expected_version": nil})
		w.refused("INVALID_ARGUMENT", "queue_redrive", args{"queue": "q", "task_ids": nil})

		// A string that is no such text is refused as before.
		for name, value := range map[string]any{"ttl_secs": `"60"`, "wait_secs": "", "keep_alive": "yes"} {
			if data := refusal(w, "run_lease_acquire", args{"key": "k4"}, name, value); data["argument"] != name {
				t.Errorf("%s=%v is refused as %v", name, value, data)
			}
		}
	})
}

// A whole number is one in every form that JSON has for it: some languages write all
// numbers with a fraction.
func TestWholeNumbersMayHaveAFraction(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		grant := root.ok("run_lease_acquire", args{"key": "k"})
		token := json.RawMessage(fmt.Sprintf("%v.0", grant["token"]))
		if check := root.ok("lease_check", args{"scope": "run", "key": "k", "token": token}); check["current"] != true {
			t.Errorf("token %s: %v", token, check)
		}
		root.ok("lease_list", args{"limit": json.RawMessage("1e1")})
	})
}

func example(s *jsonschema.Schema) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "array" && s.Items.Type == "object":
		one := make(args)
		for _, name := range s.Items.Required {
			one[name] = example(s.Items.Properties[name])
		}
		if s.Items.Properties["scope"] != nil {
			one["scope"], one["key"] = "run", "x"
		}
		return []args{one}
	case s.Type == "array":
		return []string{"x"}
	case s.Type == "string" && strings.HasPrefix(s.Description, "from the "): // an id
		return "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"
	case s.Type == "string":
		return "x"
	case s.Type == "number", s.Type == "integer":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	}
	return nil
}

// refusal is that of a call with another value for one argument.
func refusal(c caller, tool string, valid args, name string, value any) map[string]any {
	c.h.t.Helper()
	a := maps.Clone(valid)
	a[name] = value
	return c.refused("INVALID_ARGUMENT", tool, a)
}

// listsWithOneWrong are lists of two objects, of which the second has a field
// that is unknown, missing, or not what the schema says.
func listsWithOneWrong(s *jsonschema.Schema) (lists []struct {
	of    []args
	wrong string
},
) {
	add := func(wrong string, change func(one args)) {
		valid := example(&jsonschema.Schema{Type: "array", Items: s}).([]args)[0]
		one := maps.Clone(valid)
		change(one)
		lists = append(lists, struct {
			of    []args
			wrong string
		}{[]args{valid, one}, wrong})
	}
	add("no_such_field", func(one args) { one["no_such_field"] = 1 })
	for name, field := range s.Properties {
		if slices.Contains(s.Required, name) {
			add(name, func(one args) { delete(one, name) })
		}
		for _, value := range outside(field) {
			add(name, func(one args) { one[name] = value })
		}
	}
	return lists
}

func outside(s *jsonschema.Schema) (values []any) {
	switch s.Type {
	case "string":
		values = append(values, 1, true, []any{})
		if strings.HasPrefix(s.Description, "from the ") { // an id
			values = append(values, "x", "7f2c8a521de04d5a9a3e1f2b3c4d5e6f", "{7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f}")
		}
		if s.MaxLength != nil {
			values = append(values, strings.Repeat("x", *s.MaxLength+1))
		}
		if s.MinLength != nil && *s.MinLength > 0 {
			values = append(values, "")
		}
		if s.Enum != nil {
			values = append(values, "no such word")
		}
	case "number", "integer":
		values = append(values, "x", "", true)
		if s.Minimum != nil {
			values = append(values, *s.Minimum-1)
		}
		if s.Maximum != nil {
			values = append(values, *s.Maximum+1)
		}
		if s.Type == "integer" {
			values = append(values, 1.5)
		}
	case "array":
		values = append(values, "x", 1, []any{1})
		if s.MinItems != nil {
			values = append(values, []string{})
		}
		if s.MaxItems != nil {
			values = append(values, make([]string, *s.MaxItems+1))
		}
	case "object":
		values = append(values, "x", 1, []any{})
	case "boolean":
		values = append(values, "x", 1)
	}
	return values
}

func bounds(s *jsonschema.Schema) (values []any) {
	if s.Minimum != nil {
		values = append(values, *s.Minimum)
	}
	if s.Maximum != nil && *s.Maximum > 50 { // a lower maximum belongs to a wait
		values = append(values, *s.Maximum)
	}
	return values
}

// Every other spelling of a path is refused or means the same entry, in every
// tool and in globs.
func TestAliasesOfAPathAreRefusedOrTheSame(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		root := h.actor(dispatch.Root, "", "boss")
		w1, w2 := h.actor(dispatch.Worker, "", "W1"), h.actor(dispatch.Worker, "", "W2")
		me := w1.Actor.ID.String()
		w1.ok("kv_set", args{"path": "/peer/self/x", "value": "secret"})
		w1.ok("lease_acquire", args{"name": "x"})

		for _, alias := range []string{"/peer/W1/x", "/peer/self/x", "/peer/" + me + "/x"} {
			e := w1.ok("kv_get", args{"path": alias})["entry"].(map[string]any)
			if e["path"] != "/peer/W1/x" || e["value"] != "secret" {
				t.Errorf("%s is %v", alias, e)
			}
			w2Alias := alias
			if strings.Contains(alias, "self") {
				continue
			}
			for tool, a := range pathCalls(w2Alias) {
				w2.refused("FORBIDDEN", tool, a)
			}
		}
		for _, alias := range []string{
			"//peer/W1/x", "/peer//W1/x", "/peer/W1//x", "/peer/./W1/x", "/peer/W1/./x", "/peer/W1/x/", "/peer/W1/../W1/x",
			"/shared/../peer/W1/x", "/peer/W2/../W1/x", "peer/W1/x", "/peer/W1/x\x00", "/peer/W1/x\n", "/./peer/W1/x", "/peer/W1", "/peer/", "/", "",
			"/PEER/W1/x", "/other/x", "/peer/" + strings.ToUpper(me) + "/x", "/peer/W1/\u0065\u0301",
		} {
			for tool, a := range pathCalls(alias) {
				for _, c := range []caller{root, w1, w2} {
					object, refusal := c.call(tool, a)
					if refusal == nil {
						t.Errorf("%s %q answers %v", tool, alias, object)
					} else if refusal.Code != "INVALID_ARGUMENT" && refusal.Code != "FORBIDDEN" {
						t.Errorf("%s %q is refused with %s", tool, alias, refusal.Code)
					}
				}
			}
			if object, refusal := w2.call("kv_list", args{"glob": alias}); refusal == nil && len(object["entries"].([]any)) > 0 {
				t.Errorf("kv_list %q answers %v", alias, object)
			}
		}
		for _, alias := range []string{"/leases//x", "//leases/x", "/leases/./x", "./x", "x/", "/x", "a/../x", "/leases/x/", "/leases/", "leases/../x"} {
			object, refusal := w2.call("lease_acquire", args{"name": alias})
			if refusal == nil {
				t.Errorf("lease_acquire %q answers %v", alias, object)
			} else if refusal.Code != "INVALID_ARGUMENT" {
				t.Errorf("lease_acquire %q is refused with %s", alias, refusal.Code)
			}
		}
		for _, glob := range []string{"/**", "/peer/**", "/peer/*/x", "/peer/W1/**", "/peer/W?/x", "/peer/{W1,W2}/x", "/*/W1/x", "/p*/**", "/peer/" + me + "/**", "/peer/[V-X]1/*"} {
			object, refusal := w2.call("kv_list", args{"glob": glob, "limit": 1})
			if refusal != nil && refusal.Code == "FORBIDDEN" {
				continue
			}
			if refusal != nil {
				t.Errorf("kv_list %q: %s", glob, refusal.Message)
				continue
			}
			if text := fmt.Sprint(object); strings.Contains(text, "W1/x") || strings.Contains(text, "secret") {
				t.Errorf("kv_list %q shows another's entry: %s", glob, text)
			}
			if seen := fmt.Sprint(root.ok("kv_list", args{"glob": glob})); glob != "/peer/self/**" && !strings.Contains(seen, "/peer/W1/x") {
				t.Errorf("kv_list %q by the lead shows %s", glob, seen)
			}
		}
	})
}

func pathCalls(path string) map[string]args {
	return map[string]args{
		"kv_get":    {"path": path},
		"kv_set":    {"path": path, "value": 1},
		"kv_cas":    {"path": path, "expected_version": 0, "value": 1},
		"kv_delete": {"path": path},
		"kv_wait":   {"path": path, "wait_secs": 0},
	}
}

func TestToolsAreWhatClientsCanTake(t *testing.T) {
	const maxList = 80_000 // some clients give all of it to their model
	size := 0
	defer func() {
		if size > maxList {
			t.Errorf("the list of tools has %d bytes, more than %d", size, maxList)
		}
	}()
	for _, tool := range tools.Agents() {
		d := tool.Definition(true)
		size += len(d.RawInputSchema) + len(d.RawOutputSchema) + len(d.Description)
		if len(d.Name) > 63 {
			t.Errorf("%s: some clients cut names at 63", d.Name)
		}
		a := d.Annotations
		if a.ReadOnlyHint == nil || a.DestructiveHint == nil || a.IdempotentHint == nil || a.OpenWorldHint == nil {
			t.Errorf("%s does not set all four hints", d.Name)
		}
		if *a.ReadOnlyHint && *a.DestructiveHint {
			t.Errorf("%s reads only, and destroys", d.Name)
		}
		for _, schema := range []json.RawMessage{d.RawInputSchema, d.RawOutputSchema} {
			var s struct{ Type string }
			if err := json.Unmarshal(schema, &s); err != nil || s.Type != "object" {
				t.Errorf("%s has a schema of type %q: %v", d.Name, s.Type, err)
			}
		}
		for _, schema := range []json.RawMessage{d.RawInputSchema, d.RawOutputSchema} {
			var s any
			if err := json.Unmarshal(schema, &s); err != nil {
				t.Fatal(err)
			}
			onlyObjects(t, d.Name, s)
		}
		for name, p := range tool.Input().Properties {
			if p.Description == "" {
				t.Errorf("%s: argument %s is not described", d.Name, name)
			}
		}
	}
}

// onlyObjects checks that the schema of each property and item is an object. The
// values true and false are valid schemas too, but they break clients of the
// TypeScript SDK.
func onlyObjects(t *testing.T, where string, schema any) {
	t.Helper()
	s, ok := schema.(map[string]any)
	if !ok {
		t.Errorf("%s has the schema %v", where, schema)
		return
	}
	if items, ok := s["items"]; ok {
		onlyObjects(t, where+"[]", items)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		onlyObjects(t, where+"."+name, p)
	}
}
