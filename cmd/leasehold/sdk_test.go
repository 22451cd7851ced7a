package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Every tool answers the official Go SDK's client, which holds each answer
// against the tool's own output schema.
func TestSDKClientCallsEveryTool(t *testing.T) {
	t.Parallel()
	newDir(t)
	cs, err := connectSDK(t.Context(), "every", testProgram(t, "mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	called := make(map[string]bool)
	call := func(tool string, args map[string]any) map[string]any {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil || res.IsError {
			t.Fatalf("%s %v: %v %+v", tool, args, err, res)
		}
		called[tool] = true
		b, err := json.Marshal(res.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		var answer map[string]any
		if err := json.Unmarshal(b, &answer); err != nil {
			t.Fatal(err)
		}
		return answer
	}

	l := call("lease_acquire", map[string]any{"name": "build/output.json", "ttl_secs": 5})
	call("lease_renew", map[string]any{"lease_id": l["lease_id"], "ttl_secs": 60})
	g := call("run_lease_acquire", map[string]any{"key": "port 3000", "keep_alive": true})
	if many := call("lease_acquire_many", map[string]any{"leases": []any{
		map[string]any{"scope": "run", "key": "port 3000"}, map[string]any{"scope": "layer", "key": "build/output.json"},
	}})["leases"].([]any); len(many) != 2 || many[1].(map[string]any)["lease_id"] != l["lease_id"] {
		t.Errorf("several leases: %v", many)
	}
	if list := call("lease_list", nil)["leases"].([]any); len(list) != 2 {
		t.Errorf("leases %v", list)
	}
	if s := call("lease_check", map[string]any{"scope": "layer", "key": "build/output.json", "token": l["token"]}); s["current"] != true {
		t.Errorf("the token is stale: %v", s)
	}
	if s := call("lease_transfer", map[string]any{"lease_id": l["lease_id"], "to": "root"}); s["offered_to"] != "root" {
		t.Errorf("offered to %v", s)
	}
	call("lease_release", map[string]any{"lease_id": l["lease_id"]})
	call("run_lease_release", map[string]any{"lease_id": g["lease_id"]})

	v := call("kv_set", map[string]any{"path": "/shared/plan", "value": []int{1, 2}})["version"]
	call("kv_cas", map[string]any{"path": "/shared/plan", "expected_version": v, "value": "b"})
	call("kv_wait", map[string]any{"path": "/shared/plan", "min_version": 2, "wait_secs": 10})
	if e := call("kv_get", map[string]any{"path": "/shared/plan"})["entry"].(map[string]any); e["value"] != "b" {
		t.Errorf("entry %v", e)
	}
	call("kv_list", map[string]any{"glob": "/shared/*"})
	call("kv_delete", map[string]any{"path": "/shared/plan"})
	call("actor_list", nil)

	claim := func() map[string]any {
		return call("task_claim", map[string]any{"queues": []string{"q"}, "ttl_secs": 60, "wait_secs": 10})["tasks"].([]any)[0].(map[string]any)
	}
	id := call("task_enqueue", map[string]any{"queue": "q", "payload": "work", "max_attempts": 1})["task_id"]
	c := claim()
	call("task_heartbeat", map[string]any{"task_id": id, "token": c["token"]})
	call("task_nack", map[string]any{"task_id": id, "token": c["token"], "reason": "no luck"})
	call("queue_dead", map[string]any{"queue": "q"})
	call("queue_redrive", map[string]any{"queue": "q"})
	call("task_abandon", map[string]any{"task_id": id, "token": claim()["token"]})
	call("queue_redrive", map[string]any{"queue": "q", "task_ids": []any{id}})
	call("task_submit", map[string]any{"task_id": id, "token": claim()["token"], "status": "completed", "result": 42})
	if r := call("task_result", map[string]any{"task_id": id, "wait_secs": 10}); r["result"] != 42.0 {
		t.Errorf("result %v", r)
	}
	call("task_get", map[string]any{"task_id": id})
	call("task_cancel", map[string]any{"task_id": id})
	call("queue_stats", nil)

	call("actor_message", map[string]any{"to": "root", "text": "hello"})
	call("actor_inbox", nil)
	call("actor_report", map[string]any{"result": "all of them called"})

	// It is a worker: what leads do is refused, in words. TestATreeOfAllClients
	// has leads that do it.
	refused := func(tool, code string, args map[string]any) {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil || !res.IsError {
			t.Fatalf("%s %v: %v %+v", tool, args, err, res)
		}
		called[tool] = true
		if refusal, _ := res.StructuredContent.(map[string]any); refusal["code"] != code {
			t.Errorf("%s: %v, want %s", tool, refusal, code)
		}
	}
	refused("spawn_worker", "FORBIDDEN", map[string]any{"prompt": "work"})
	refused("spawn_sublead", "FORBIDDEN", map[string]any{"prompt": "lead"})
	refused("lease_revoke", "FORBIDDEN", map[string]any{"scope": "run", "key": "port 3000", "reason": "no"})
	refused("actor_cancel", "FORBIDDEN", map[string]any{"actor": "root", "reason": "no"})
	refused("actor_status", "NOT_FOUND", map[string]any{"actor": "nobody"})
	refused("actor_wait", "FORBIDDEN", map[string]any{"actors": []string{"nobody"}, "wait_secs": 0})

	for _, tool := range tools.Agents() {
		if !called[tool.Name] {
			t.Errorf("%s was not called", tool.Name)
		}
	}
	listed, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range listed.Tools {
		names = append(names, tool.Name)
	}
	of := tools.NamesFor(dispatch.Worker)
	slices.Sort(names)
	slices.Sort(of)
	if !slices.Equal(names, of) {
		t.Errorf("it is shown %v, a worker has %v", names, of)
	}
}
