package book

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

type args = map[string]any

// A scene is one call that the reference shows, with the answer it had.
type scene struct {
	who, tool string
	args      args
	reply     reply
}

// A play makes the calls of the reference in their order.
type play struct {
	*daemon
	cast   map[string]*client.Client
	tools  map[string]tools.Tool
	scenes []scene
	stale  []args // a lease as require_leases takes it, which W1 has lost
}

// does makes a call that must come to code, "" for an answer, and must fit the
// tool's schemas.
func (p *play) does(code, who, tool string, a args) reply {
	p.t.Helper()
	t, ok := p.tools[tool]
	if !ok {
		p.t.Fatalf("there is no tool %s", tool)
	}
	r := p.call(p.cast[who], tool, a)
	if r.code != code {
		p.t.Fatalf("%s: %s %v came to %q, want %q: %s", who, tool, a, r.code, code, r.text)
	}
	if code != "INVALID_ARGUMENT" {
		fits(p.t, tool+" arguments", t.Input(), a)
	}
	if code == "" {
		fits(p.t, tool+" answer", t.Output(), r.object)
	}
	p.scenes = append(p.scenes, scene{who, tool, a, r})
	return r
}

// waits makes a call that waits, and returns once it does. The call is no scene.
func (p *play) waits(who, tool string, a args) (done <-chan reply) {
	c := make(chan reply, 1)
	go func() { c <- p.call(p.cast[who], tool, a) }()
	time.Sleep(10 * time.Millisecond) // the holder is told of a waiter when its place is durable
	return c
}

// fits holds a value against a schema.
func fits(t *testing.T, what string, schema *jsonschema.Schema, value any) {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(b, &plain); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := resolved.Validate(plain); err != nil {
		t.Fatalf("%s: %v: %s", what, err, b)
	}
}

func (r reply) leaseID(t *testing.T) string {
	t.Helper()
	var l struct {
		LeaseID string `json:"lease_id"`
	}
	if err := json.Unmarshal(r.object, &l); err != nil || l.LeaseID == "" {
		t.Fatalf("no lease_id in %s", r.object)
	}
	return l.LeaseID
}

func (r reply) token(t *testing.T) uint64 {
	t.Helper()
	var l struct{ Token uint64 }
	if err := json.Unmarshal(r.object, &l); err != nil || l.Token == 0 {
		t.Fatalf("no token in %s", r.object)
	}
	return l.Token
}

// act plays all scenes, in a bubble: what takes time takes none.
func act(t *testing.T) (scenes []scene) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &play{daemon: newDaemon(t), cast: make(map[string]*client.Client), tools: make(map[string]tools.Tool)}
		defer p.stop()
		for _, tool := range tools.Agents() {
			p.tools[tool.Name] = tool
		}
		p.cast["root"] = p.actor(dispatch.NewActor{Name: "lead", Role: dispatch.Root})
		p.cast["S1"] = p.actor(dispatch.NewActor{Name: "S1", Role: dispatch.Sublead, ReadDown: true})
		p.cast["S2"] = p.actor(dispatch.NewActor{Name: "S2", Role: dispatch.Sublead})
		p.cast["S1→W1"] = p.actor(dispatch.NewActor{Name: "W1", Role: dispatch.Worker, Parent: "S1"})
		p.cast["S1→W2"] = p.actor(dispatch.NewActor{Name: "W2", Role: dispatch.Worker, Parent: "S1"})
		defer func() {
			for _, c := range p.cast {
				c.Close()
			}
		}()
		p.leases()
		p.store()
		p.does("", "S1", "actor_list", args{})
		p.tasks()
		p.tree()
		scenes = p.scenes
	})
	return scenes
}

func (p *play) leases() {
	held := p.does("", "S1→W1", "lease_acquire", args{"name": "output.json", "ttl_secs": 30})
	p.does("LEASE_HELD", "S1→W2", "lease_acquire", args{"name": "/leases/output.json"})
	p.does("WAIT_TIMEOUT", "S1→W2", "lease_acquire", args{"name": "output.json", "wait_secs": 2})
	p.does("INVALID_ARGUMENT", "S1→W2", "lease_acquire", args{"name": "build//output.json"})
	p.does("INVALID_ARGUMENT", "S1→W2", "lease_acquire", args{"name": "output.json", "ttl": 30})

	span := p.does("", "S1", "run_lease_acquire", args{"key": "deploy staging", "ttl_secs": 300, "request_id": "deploy-1", "reason": "release 4.2"})
	p.does("LEASE_HELD", "S2", "run_lease_acquire", args{"key": "deploy staging"})
	p.does("WAIT_TIMEOUT", "S2", "run_lease_acquire", args{"key": "deploy staging", "wait_secs": 10})
	p.does("REQUEST_ID_REUSED", "S1", "run_lease_acquire", args{"key": "deploy production", "ttl_secs": 300, "request_id": "deploy-1"})
	p.does("", "S1", "run_lease_acquire", args{"key": "schema.sql", "mode": "shared"})
	p.does("", "S2", "run_lease_acquire", args{"key": "schema.sql", "mode": "shared"})

	p.does("", "S1→W1", "lease_acquire_many", args{"leases": []args{{"scope": "run", "key": "port 3000"}, {"scope": "layer", "key": "schema", "mode": "shared"}}, "reason": "end-to-end tests"})
	p.does("LEASE_HELD", "S1→W2", "lease_acquire_many", args{"leases": []args{{"scope": "run", "key": "port 3001"}, {"scope": "run", "key": "port 3000"}}})
	p.does("", "S2", "run_lease_acquire", args{"key": "port 4000"})
	waiter := p.waits("S1→W1", "run_lease_acquire", args{"key": "port 4000", "wait_secs": 5})
	p.does("DEADLOCK", "S2", "run_lease_acquire", args{"key": "port 3000", "wait_secs": 5})
	<-waiter

	p.does("", "S1→W1", "lease_renew", args{"lease_id": held.leaseID(p.t)})
	p.does("NOT_HOLDER", "S1→W2", "lease_renew", args{"lease_id": held.leaseID(p.t)})
	p.does("", "S1→W2", "lease_list", args{})

	token := held.token(p.t)
	p.does("", "S1→W2", "lease_check", args{"scope": "layer", "key": "output.json", "token": token})

	p.does("FORBIDDEN", "S2", "lease_revoke", args{"scope": "run", "key": "deploy staging", "reason": "the release is stopped"})

	stuck := p.does("", "S1→W1", "lease_acquire", args{"name": "docs", "ttl_secs": 600})
	p.does("", "S1", "lease_revoke", args{"scope": "layer", "key": "docs", "reason": "W1 hangs"})
	p.does("LEASE_LOST", "S1→W1", "lease_renew", args{"lease_id": stuck.leaseID(p.t)})

	given := p.does("", "S1→W1", "lease_acquire", args{"name": "review", "ttl_secs": 600, "reason": "the tests pass"})
	p.does("NOT_HOLDER", "S1→W2", "lease_transfer", args{"lease_id": given.leaseID(p.t), "to": "S1→W1"})
	p.does("NOT_FOUND", "S1→W1", "lease_transfer", args{"lease_id": given.leaseID(p.t), "to": "S1→W9"})
	p.does("", "S1→W1", "lease_transfer", args{"lease_id": given.leaseID(p.t), "to": "S1→W2"})

	mine := p.does("", "S1→W2", "lease_acquire", args{"name": "build", "ttl_secs": 60})
	p.does("NOT_HOLDER", "S1→W1", "lease_release", args{"lease_id": mine.leaseID(p.t)})
	p.does("", "S1→W2", "lease_release", args{"lease_id": mine.leaseID(p.t)})
	p.does("NOT_HOLDER", "S2", "run_lease_release", args{"lease_id": span.leaseID(p.t)})
	p.does("", "S1", "run_lease_release", args{"lease_id": span.leaseID(p.t)})

	time.Sleep(time.Minute)
	p.does("", "S1→W2", "lease_acquire", args{"name": "output.json", "ttl_secs": 60})
	p.does("LEASE_LOST", "S1→W1", "lease_renew", args{"lease_id": held.leaseID(p.t)})
	p.does("", "S1→W1", "lease_check", args{"scope": "layer", "key": "output.json", "token": token})
	p.stale = []args{{"scope": "layer", "key": "output.json", "token": token}}
}

func (p *play) store() {
	p.does("", "S1→W1", "kv_set", args{"path": "/shared/plan", "value": args{"step": 1}})
	p.does("STALE_TOKEN", "S1→W1", "kv_set", args{"path": "/shared/output", "value": args{"of": "W1"}, "require_leases": p.stale})
	p.does("FORBIDDEN", "S1→W1", "kv_set", args{"path": "/ref/plan", "value": args{"step": 1}})
	p.does("LIMIT", "S1→W1", "kv_set", args{"path": "/shared/plan", "value": strings.Repeat("x", 1<<20)})
	p.does("", "S1→W2", "kv_get", args{"path": "/shared/plan"})
	p.does("FORBIDDEN", "S1→W2", "kv_get", args{"path": "/peer/W1/notes"})
	p.does("INVALID_ARGUMENT", "S1→W2", "kv_get", args{"path": "/shared/./plan"})
	p.does("NOT_FOUND", "S1", "kv_get", args{"path": "/shared/plan", "layer": "S9"})
	p.does("", "S1→W2", "kv_cas", args{"path": "/shared/plan", "expected_version": 1, "value": args{"step": 2}})
	p.does("VERSION_MISMATCH", "S1→W1", "kv_cas", args{"path": "/shared/plan", "expected_version": 1, "value": args{"step": 2}})
	p.does("", "S1→W1", "kv_list", args{"glob": "/shared/**", "values": true})
	p.does("FORBIDDEN", "S1→W1", "kv_list", args{"glob": "/peer/W2/**"})
	p.does("", "S1→W1", "kv_wait", args{"path": "/shared/plan", "min_version": 3, "wait_secs": 5})
	p.does("FORBIDDEN", "S1→W1", "kv_wait", args{"path": "/peer/W2/done", "wait_secs": 5})
	p.does("VERSION_MISMATCH", "S1→W1", "kv_delete", args{"path": "/shared/plan", "expected_version": 1})
	p.does("FORBIDDEN", "S1→W1", "kv_delete", args{"path": "/ref/plan"})
	p.does("", "S1→W1", "kv_delete", args{"path": "/shared/plan"})
}

func (p *play) tasks() {
	id := p.does("", "S1", "task_enqueue", args{"queue": "compile", "payload": args{"file": "a.go"}, "idempotency_key": "a.go@3f2c", "max_attempts": 2}).taskID(p.t)
	p.does("REQUEST_ID_REUSED", "S1", "task_enqueue", args{"queue": "compile", "payload": args{"file": "b.go"}, "idempotency_key": "a.go@3f2c"})
	p.does("LIMIT", "S1", "task_enqueue", args{"queue": "compile", "payload": strings.Repeat("x", 1<<20)})
	p.does("INVALID_ARGUMENT", "S1", "task_enqueue", args{"queue": "to compile", "payload": 1})

	first := p.does("", "S1→W1", "task_claim", args{"queues": []string{"compile", "link"}, "ttl_secs": 60, "wait_secs": 50}).claim(p.t)
	p.does("INVALID_ARGUMENT", "S1→W1", "task_claim", args{"queues": []string{"compile"}})
	p.does("", "S1→W1", "task_heartbeat", first)
	p.does("STALE_TOKEN", "S1→W2", "task_heartbeat", first)
	p.does("", "S1", "task_get", args{"task_id": id})
	p.does("NOT_FOUND", "S1", "task_get", args{"task_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})
	p.does("", "S1→W1", "task_nack", and(first, args{"delay_secs": 0, "reason": "no compiler"}))
	p.does("STALE_TOKEN", "S1→W1", "task_nack", and(first, args{"reason": "no compiler"}))

	second := p.does("", "S1→W2", "task_claim", args{"queues": []string{"compile"}, "ttl_secs": 60}).claim(p.t)
	p.does("", "S1→W2", "task_abandon", second)
	p.does("STALE_TOKEN", "S1→W2", "task_abandon", second)
	p.does("", "S1", "queue_dead", args{"queue": "compile"})
	p.does("", "S1", "queue_redrive", args{"queue": "compile", "task_ids": []string{id}})
	p.does("INVALID_ARGUMENT", "S1", "queue_redrive", args{"queue": "compile", "task_ids": []string{"a.go"}})

	third := p.does("", "S1→W2", "task_claim", args{"queues": []string{"compile"}, "ttl_secs": 60}).claim(p.t)
	p.does("INVALID_ARGUMENT", "S1→W2", "task_submit", and(third, args{"status": "done"}))
	p.does("", "S1→W2", "task_submit", and(third, args{"status": "completed", "result": args{"object": "a.o"}}))
	p.does("STALE_TOKEN", "S1→W1", "task_submit", and(first, args{"status": "completed", "result": args{"object": "a.o"}}))
	p.does("", "S1", "task_result", args{"task_id": id, "wait_secs": 50})
	p.does("NOT_FOUND", "S1", "task_result", args{"task_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})

	later := p.does("", "S1", "task_enqueue", args{"queue": "deploy", "payload": nil, "delay_secs": 3600}).taskID(p.t)
	p.does("", "S1", "task_cancel", args{"task_id": later})
	p.does("NOT_FOUND", "S1", "task_cancel", args{"task_id": "7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f"})
	p.does("", "S1", "queue_stats", args{})
}

// tree plays in a run whose actors are launched, with a dispatcher that starts
// nothing.
func (p *play) tree() {
	p.does("UNAVAILABLE", "S1", "spawn_worker", args{"prompt": "Fix the lexer."})
	op := p.connect(server.Hello{Operator: true}, "dispatcher")
	dispatcher := func(tool string, a args) json.RawMessage {
		p.t.Helper()
		a["run"] = "parser"
		r := p.call(op, tool, a)
		if r.code != "" {
			p.t.Fatalf("%s: %s", tool, r.text)
		}
		return r.object
	}
	pid := 4710
	started := make(map[string]string)
	start := func(path, as string) {
		p.t.Helper()
		var next struct {
			Launch []struct {
				ID      string `json:"actor_id"`
				Session string `json:"session"`
			}
		}
		if err := json.Unmarshal(dispatcher("operator_launch_next", args{"wait_secs": 1}), &next); err != nil || len(next.Launch) != 1 {
			p.t.Fatalf("to be started: %+v %v", next, err)
		}
		pid++
		started[path] = next.Launch[0].ID
		dispatcher("operator_launch_started", args{"actor_id": started[path], "pid": pid})
		p.cast[as] = p.connect(server.Hello{Handle: next.Launch[0].Session}, path)
	}
	exit := func(path, status string, more args) {
		p.t.Helper()
		dispatcher("operator_launch_exited", and(args{"actor_id": started[path], "status": status}, more))
	}
	dispatcher("operator_run_dispatch", args{
		"root":   args{"name": "lead", "agent": "claude", "prompt": "Make the parser pass its tests."},
		"agents": []string{"claude", "codex"}, "settings": args{"budget_usd": 5, "max_depth": 2, "worker": args{"budget_usd": 1}},
	})
	start("root", "lead")
	p.does("", "lead", "spawn_sublead", args{"name": "tests", "prompt": "Write the tests that are missing.", "budget_usd": 2, "initial_ref": args{"style": "table tests"}})
	p.does("LIMIT", "lead", "spawn_sublead", args{"prompt": "Write the documentation.", "budget_usd": 4})
	p.does("INVALID_ARGUMENT", "lead", "spawn_sublead", args{"prompt": "Write the documentation.", "agent": "cursor"})
	start("tests", "tests")
	p.does("", "lead", "spawn_worker", args{"prompt": "Fix the lexer.", "agent": "codex", "worktree": true, "timeout_secs": 1800})
	p.does("INVALID_ARGUMENT", "lead", "spawn_worker", args{"name": "W1", "prompt": "Fix the lexer."})
	start("W1", "W1")
	p.does("FORBIDDEN", "W1", "spawn_worker", args{"prompt": "Fix the lexer."})
	p.does("FORBIDDEN", "W1", "actor_wait", args{"actors": []string{"tests"}, "wait_secs": 50})
	p.does("FORBIDDEN", "W1", "actor_cancel", args{"actor": "tests", "reason": "I am done"})
	p.does("", "W1", "actor_report", args{"result": args{"fixed": 3}})
	p.does("LIMIT", "W1", "actor_report", args{"result": strings.Repeat("x", 64<<10)})
	p.does("", "lead", "actor_message", args{"to": "W1", "text": "Is the lexer yours as well?"})
	p.does("NOT_FOUND", "lead", "actor_message", args{"to": "W9", "text": "Is the lexer yours as well?"})
	p.does("LIMIT", "lead", "actor_message", args{"to": "W1", "text": strings.Repeat("x", 16<<10+1)})
	p.does("", "W1", "actor_inbox", args{"wait_secs": 10})
	exit("W1", "succeeded", args{"exit_code": 0, "cost_usd": 0.4})
	p.does("", "lead", "actor_wait", args{"actors": []string{"W1", "tests"}, "mode": "any", "wait_secs": 50})
	p.does("NOT_FOUND", "lead", "actor_wait", args{"actors": []string{"W9"}, "wait_secs": 50})
	p.does("", "lead", "actor_status", args{"actor": "tests"})
	p.does("NOT_FOUND", "tests", "actor_status", args{"actor": "W1"})
	p.does("", "lead", "actor_cancel", args{"actor": "tests", "reason": "there are enough tests"})
	dispatcher("operator_run_drain", args{"reason": "Ctrl-C"})
	p.does("DRAINING", "lead", "spawn_worker", args{"prompt": "Fix the printer."})
	p.does("DRAINING", "lead", "spawn_sublead", args{"prompt": "Fix the printer."})
	exit("tests", "cancelled", args{"signal": "SIGTERM"})
	exit("root", "succeeded", args{"exit_code": 0})
	dispatcher("operator_run_results", args{"actors": []string{started["W1"], started["tests"]}})
	dispatcher("operator_run_finish", args{})
}

// connect opens a session, until the play ends.
func (p *play) connect(hello server.Hello, name string) *client.Client {
	p.t.Helper()
	nc, err := p.Dial(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	c, err := client.Connect(p.ctx, nc, hello, name, "book")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	return c
}

// claim is what names the one task of a claim.
func (r reply) claim(t *testing.T) args {
	t.Helper()
	var got struct{ Tasks []task }
	if err := json.Unmarshal(r.object, &got); err != nil || len(got.Tasks) != 1 {
		t.Fatalf("no one task in %s", r.object)
	}
	return args{"task_id": got.Tasks[0].ID, "token": got.Tasks[0].Token}
}

// and is a with more arguments.
func and(a, more args) args {
	all := maps.Clone(a)
	maps.Copy(all, more)
	return all
}

// toolReference is the page of all tools.
func toolReference(t *testing.T) string {
	scenes := act(t)
	n := new(normal)
	var b strings.Builder
	b.WriteString("# Tool reference\n\n")
	b.WriteString("<!-- Generated from package dispatch/server/tools by `just docs`. Do not edit. -->\n\n")
	b.WriteString("Each tool is listed with its arguments, its answer, one call as an agent makes it, and the\n" +
		"refusals that a call of it is likely to meet. The replies on this page come from a real daemon; only the\n" +
		"ids in them are replaced. A reply is a text and an object, and each has everything. Lengths are in bytes. An argument that is `null`\n" +
		"counts as left out, but `expected_version`, `task_ids` and the `holder` of a revoke must not be null. Where a number, `true` or `false`, a list or an object is expected, a string that contains its JSON is accepted too,\n" +
		"because some clients send it so. An argument that can be any JSON is taken as it is. What the codes\n" +
		"mean, and what data each carries, is in [Refusals and notices](refusals.md). The group of a tool is what\n" +
		"`leasehold mcp --tools` takes.\n\n" +
		"The calls are made in a run with the sub-leads `S1` and `S2`, and the workers `S1→W1` and `S1→W2`. Those\n" +
		"that need started actors are made in another run, which is dispatched: its root is shown as `lead`.\n\n")
	for _, tool := range tools.Agents() {
		fmt.Fprintf(&b, "- [`%s`](#%s): %s\n", tool.Name, tool.Name, lowerFirst(tool.Title))
	}
	for _, tool := range tools.Agents() {
		writeTool(&b, tool)
		writeScenes(&b, n, t, scenes, tool.Name)
	}
	return b.String()
}

func writeTool(b *strings.Builder, tool tools.Tool) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n*%s.*\n\n", tool.Name, escape(tool.Description), effect(tool))
	b.WriteString("Arguments:\n\n")
	input := tool.Input()
	if len(input.PropertyOrder) == 0 {
		b.WriteString("none.\n\n")
	} else {
		b.WriteString("| name | type | if left out | meaning |\n|---|---|---|---|\n")
		for _, name := range input.PropertyOrder {
			s := input.Properties[name]
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, typed(s), leftOut(input, name), escape(s.Description))
		}
		b.WriteString("\n")
	}
	b.WriteString("Answer:\n\n| field | type | meaning |\n|---|---|---|\n")
	writeFields(b, "", tool.Output())
	b.WriteString("\n")
}

// writeFields lists the fields of an object, those within it below it. Every
// answer may have notices, which have their own page.
func writeFields(b *strings.Builder, prefix string, s *jsonschema.Schema) {
	names := s.PropertyOrder
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(s.Properties))
	}
	for _, name := range names {
		f := s.Properties[name]
		if prefix == "" && name == "notices" {
			fmt.Fprintf(b, "| `notices?` | %s | [leases that you have lost, messages, or that the run ends](refusals.md#notices) |\n", typed(f))
			continue
		}
		shown := prefix + name
		if !slices.Contains(s.Required, name) {
			shown += "?"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", shown, typed(f), escape(f.Description))
		inner := f
		if f.Items != nil {
			inner, shown = f.Items, shown+"[]"
		}
		if len(inner.Properties) > 0 {
			writeFields(b, shown+".", inner)
		}
	}
}

// effect is what the annotations of a tool say.
func effect(tool tools.Tool) string {
	words := []string{"Group `" + tool.Group + "`"}
	if !(tools.Viewer{Role: dispatch.Worker}).Sees(tool) {
		words = append(words, "for leads")
	}
	switch destroys := func(leads bool) bool { return *tool.Definition(leads).Annotations.DestructiveHint }; {
	case tool.Effect.ReadOnly:
		words = append(words, "changes nothing")
	case destroys(false):
		words = append(words, "may lose something of another party")
	case destroys(true):
		words = append(words, "may lose something of another party, if a lead calls it")
	default:
		words = append(words, "loses nothing of another party")
	}
	if tool.Effect.Idempotent && !tool.Effect.ReadOnly {
		words = append(words, "a second call with the same arguments changes nothing more")
	}
	return strings.Join(words, "; ")
}

func typed(s *jsonschema.Schema) string {
	name := s.Type
	null := false
	for _, one := range s.Types {
		if one == "null" {
			null = true
		} else {
			name = one
		}
	}
	switch {
	case name == "":
		name = "any JSON"
	case name == "array" && s.Items != nil:
		name = "array of " + typed(s.Items)
	case s.Format == "date-time":
		name = "instant"
	case name == "integer":
		name = "whole number"
	}
	switch lo, hi := bounds(s); {
	case lo != "" && hi != "":
		name += ", " + lo + " to " + hi
	case hi != "":
		name += ", at most " + hi
	case lo != "":
		name += ", at least " + lo
	}
	if len(s.Enum) > 0 {
		var words []string
		for _, word := range s.Enum {
			words = append(words, fmt.Sprintf("`%v`", word))
		}
		name = strings.Join(words, ", ")
	}
	if null {
		name += " or null"
	}
	return name
}

func bounds(s *jsonschema.Schema) (lo, hi string) {
	number := func(x *float64) string {
		if x == nil {
			return ""
		}
		return strconv.FormatFloat(*x, 'f', -1, 64)
	}
	length := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	return number(s.Minimum) + length(s.MinLength), number(s.Maximum) + length(s.MaxLength)
}

func leftOut(s *jsonschema.Schema, name string) string {
	if slices.Contains(s.Required, name) {
		return "must be given"
	}
	if d := s.Properties[name].Default; d != nil {
		return "`" + string(d) + "`"
	}
	return "–"
}

// writeScenes shows the first answer of a tool, and one refusal for each code.
func writeScenes(b *strings.Builder, n *normal, t *testing.T, scenes []scene, tool string) {
	shown := make(map[string]bool)
	var refusals []scene
	for _, s := range scenes {
		if s.tool != tool || shown[s.reply.code] {
			continue
		}
		shown[s.reply.code] = true
		if s.reply.code != "" {
			refusals = append(refusals, s)
			continue
		}
		fmt.Fprintf(b, "`%s` calls, and reads:\n\n```json\n%s\n```\n\n```text\n%s\n```\n\n```json\n%s\n```\n\n",
			s.who, n.text(compact(t, s.args)), n.text(s.reply.text), n.text(pretty(t, s.reply.object)))
	}
	if !shown[""] {
		t.Errorf("the reference shows no answer of %s", tool)
	}
	if len(refusals) == 0 {
		return
	}
	b.WriteString("| refused with | for instance |\n|---|---|\n")
	for _, s := range refusals {
		message, _, _ := strings.Cut(s.reply.text, "\n") // below it is the refusal's object
		fmt.Fprintf(b, "| `%s` | %s |\n", s.reply.code, escape(n.text(message)))
	}
}

func compact(t *testing.T, value any) string {
	t.Helper()
	b, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func pretty(t *testing.T, object json.RawMessage) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(object, &value); err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;", "*", `\*`).Replace(s)
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
