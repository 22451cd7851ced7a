package tools_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/server"
)

// launchedRun plays a dispatched run, with op as its launcher, through every
// tool that has a part in it.
func launchedRun(t *testing.T, op caller) {
	t.Helper()
	h := op.h
	begun := op.ok("operator_run_dispatch", args{
		"run":      "tree",
		"root":     args{"name": "lead", "agent": "sh", "prompt": "lead on"},
		"agents":   []string{"sh", "claude"},
		"plan":     "what other launchers are told",
		"settings": args{"budget_usd": 10, "max_depth": 2, "worker": args{"agent": "sh", "budget_usd": 1}, "sublead": args{"max_workers": 3}},
	})
	op.refused("INVALID_ARGUMENT", "operator_run_dispatch", args{"run": "tree2", "root": args{"name": "x", "prompt": "y", "agent": "sh", "colour": 1}, "agents": []string{"sh"}})
	op.refused("INVALID_ARGUMENT", "operator_run_dispatch", args{"run": "tree", "root": args{"name": "lead", "agent": "sh", "prompt": "again"}, "agents": []string{"sh"}})
	op.refused("FORBIDDEN", "operator_launch_next", args{"run": "r", "wait_secs": 1})

	machine := h.connect(server.Hello{Operator: true})
	instance := "chosen at random, as it were"
	machine.refused("NOT_FOUND", "operator_launch_join", args{"run": "tree3", "machine": "m", "instance": instance})
	machine.refused("INVALID_ARGUMENT", "operator_launch_join", args{"run": "tree", "machine": "m", "instance": "short"})
	machine.refused("INVALID_ARGUMENT", "operator_launch_join", args{"run": "tree", "machine": "m", "instance": instance, "labels": []string{"a b"}})
	if joined := machine.ok("operator_launch_join", args{"run": "tree", "machine": "m", "instance": instance, "labels": []string{"gpu"}}); joined["run_id"] != begun["run_id"] {
		t.Errorf("joined %v, want %v", joined, begun["run_id"])
	}
	machine.refused("FORBIDDEN", "operator_run_finish", args{"run": "tree"})
	machine.refused("FORBIDDEN", "operator_run_drain", args{"run": "tree", "reason": "why"})
	machine.ok("operator_launch_leave", args{"run": "tree"})
	op.refused("FORBIDDEN", "operator_launch_leave", args{"run": "tree"})

	start := func(path string) (caller, map[string]any) {
		t.Helper()
		orders := op.ok("operator_launch_next", args{"run": "tree", "wait_secs": 1})
		list := orders["launch"].([]any)
		if len(list) != 1 || list[0].(map[string]any)["path"] != path {
			t.Fatalf("orders: %v, want one to start %s", orders, path)
		}
		l := list[0].(map[string]any)
		op.ok("operator_launch_started", args{"run": "tree", "actor_id": l["actor_id"], "pid": os.Getpid()})
		c := h.connect(server.Hello{Handle: l["session"].(string)})
		if !c.Resumed || c.Actor.Path != path {
			t.Fatalf("the session of %s is %+v", path, c.Welcome)
		}
		return c, l
	}
	lead, root := start("root")
	if root["actor_id"] != begun["root"] {
		t.Errorf("the root is %v, was told as %v", root["actor_id"], begun["root"])
	}
	sub := lead.ok("spawn_sublead", args{"prompt": "sub", "budget_usd": 4, "initial_ref": args{"plan": args{"n": 1}}, "env": args{"A": "b"}})
	if sub["path"] != "S1" || sub["status"] != "pending" {
		t.Errorf("spawned: %v", sub)
	}
	s1, order := start("S1")
	if o := fmt.Sprint(order["order"]); !strings.Contains(o, "A:b") || !strings.Contains(o, "prompt:sub") {
		t.Errorf("order: %s", o)
	}
	if e := s1.ok("kv_get", args{"path": "/ref/plan"})["entry"].(map[string]any); e["updated_by"] != "root" {
		t.Errorf("initial_ref: %v", e)
	}
	s1.ok("spawn_worker", args{"prompt": "work", "name": "compile", "tools": []string{"Read"}, "timeout_secs": 60})
	w, worker := start("S1→compile")
	w.refused("FORBIDDEN", "spawn_worker", args{"prompt": "more"})
	w.refused("FORBIDDEN", "actor_cancel", args{"actor": "root", "reason": "no"})
	s1.refused("LIMIT", "spawn_sublead", args{"prompt": "x", "budget_usd": 100})
	if l := s1.refused("LIMIT", "spawn_sublead", args{"prompt": "x", "budget_usd": 3.5}); l["which"] != "budget_usd" || l["max"] != 3.0 {
		t.Errorf("limit: %v", l)
	}
	w.ok("run_lease_acquire", args{"key": "out"})
	w.ok("actor_report", args{"result": args{"built": true}})
	for _, c := range []struct {
		caller
		line string
	}{
		{w, "reported; your lead reads it with actor_wait"},
		{lead, "reported"}, // nobody waits for the root
	} {
		if told, err := c.Call(h.ctx, "actor_report", args{"result": args{"built": true}}); err != nil || told.Line() != c.line {
			t.Errorf("actor_report tells %q, %v; want %q", told.Text, err, c.line)
		}
	}
	exit := op.ok("operator_launch_exited", args{
		"run": "tree", "actor_id": worker["actor_id"], "status": "succeeded", "exit_code": 0, "cost_usd": 0.25, "output": "done",
	})
	if exit["result"].(map[string]any)["built"] != true || exit["cost_usd"] != 0.25 || len(exit["leases_held"].([]any)) != 1 {
		t.Errorf("exit: %v", exit)
	}
	got := s1.ok("actor_wait", args{"actors": []string{"compile"}, "mode": "any", "wait_secs": 1})
	if got["done"] != true || got["actors"].([]any)[0].(map[string]any)["status"] != "succeeded" {
		t.Errorf("waited: %v", got)
	}
	lead.ok("actor_status", args{"actor": "S1→compile"})
	op.ok("operator_run_drain", args{"run": "tree", "reason": "that is enough"})
	if told := lead.refused("DRAINING", "spawn_worker", args{"prompt": "x"}); told["notices"] == nil {
		t.Errorf("the lead is told nothing: %v", told)
	}
	lead.ok("actor_cancel", args{"actor": "S1", "reason": "that is enough"})
	stop := op.ok("operator_launch_next", args{"run": "tree", "wait_secs": 1})["stop"].([]any)[0].(map[string]any)
	if stop["path"] != "S1" || stop["status"] != "cancelled" {
		t.Errorf("stop: %v", stop)
	}
	for _, id := range []any{order["actor_id"], root["actor_id"]} {
		op.refused("FORBIDDEN", "operator_run_finish", args{"run": "tree"})
		op.ok("operator_launch_exited", args{"run": "tree", "actor_id": id, "status": "cancelled", "signal": "SIGTERM"})
	}
	if next := op.ok("operator_launch_next", args{"run": "tree", "wait_secs": 1}); next["unfinished"] != 0.0 {
		t.Errorf("at the end: %v", next)
	}
	results := op.ok("operator_run_results", args{"run": "tree", "actors": []any{order["actor_id"], exit["actor_id"]}})["results"].([]any)
	if len(results) != 1 || results[0].(map[string]any)["result"].(map[string]any)["built"] != true {
		t.Errorf("results: %v", results)
	}
	if sum := op.ok("operator_run_finish", args{"run": "tree"}); len(sum["actors"].([]any)) != 3 {
		t.Errorf("summary: %v", sum)
	}
}
