package tools_test

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/tiktoken-go/tokenizer"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A client gives its model the whole list of tools with every request, so the
// list must be small. The test counts tokens of the o200k encoding in the parts
// that clients pass on: names, descriptions and schemas of arguments.
func TestListsOfToolsAreSmall(t *testing.T) {
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	if err != nil {
		t.Fatal(err)
	}
	count := func(v any) int {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		n, err := codec.Count(string(b))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, list := range []struct {
		who  string
		v    tools.Viewer
		most int
	}{
		{"leases alone", tools.Viewer{Role: dispatch.Worker, Groups: []string{"leases"}}, 1200},
		{"the queue alone", tools.Viewer{Role: dispatch.Worker, Groups: []string{"queue"}}, 1600},
		{"a worker", tools.Viewer{Role: dispatch.Worker}, 4000},
		{"a lead", tools.Viewer{Role: dispatch.Root, Spawns: true}, 6000},
	} {
		type passed struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Input       json.RawMessage `json:"inputSchema"`
		}
		var models []passed
		var listed []mcp.Tool
		for _, tool := range tools.Agents() {
			if !list.v.Sees(tool) {
				continue
			}
			d := tool.Definition(list.v.Role.Leads())
			models = append(models, passed{d.Name, d.Description, d.RawInputSchema})
			listed = append(listed, d)
			t.Logf("%5d tokens: %s", count(models[len(models)-1]), d.Name)
		}
		n := count(models)
		t.Logf("%s: %d tools, %d tokens, at most %d; with annotations, titles and the schemas of answers, which no client passes on, %d",
			list.who, len(models), n, list.most, count(listed))
		if n > list.most {
			t.Errorf("the list for %s has %d tokens, want at most %d", list.who, n, list.most)
		}
	}
}

// A grant says how to give it back by a tool that the client shows, whichever groups it shows.
func TestAGrantNamesOnlyToolsThatAreShown(t *testing.T) {
	inHouse(t, func(t *testing.T, h *house) {
		v := tools.Viewer{Role: dispatch.Worker, Groups: []string{"leases"}}
		h.actor(dispatch.Root, "", "boss")
		w := h.actor(dispatch.Worker, "", "W1")
		for _, c := range []struct {
			tool string
			args args
		}{
			{"run_lease_acquire", args{"key": "a"}},
			{"lease_acquire_many", args{"leases": []args{{"scope": "run", "key": "b"}, {"scope": "layer", "key": "c"}}}},
			{"lease_acquire_many", args{"leases": []args{{"scope": "layer", "key": "d"}}}},
		} {
			granted, err := w.Call(h.ctx, c.tool, c.args)
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range tools.Agents() {
				if !v.Sees(tool) && regexp.MustCompile(`\b`+tool.Name+`\b`).MatchString(granted.Text) {
					t.Errorf("%s %v names %s, which is not shown: %s", c.tool, c.args, tool.Name, granted.Text)
				}
			}
		}
	})
}

// An agent sees only tools that it can use. A tool is called destructive only if
// it may destroy something of another party.
func TestToolsAreShownToThoseWhoCanUseThem(t *testing.T) {
	names := func(v tools.Viewer) (names []string) {
		for _, tool := range tools.Agents() {
			if v.Sees(tool) {
				names = append(names, tool.Name)
			}
		}
		return names
	}
	worker, lead := tools.Viewer{Role: dispatch.Worker, Spawns: true}, tools.Viewer{Role: dispatch.Sublead, Spawns: true}
	for _, name := range []string{"spawn_worker", "spawn_sublead", "actor_wait", "actor_cancel"} {
		if slices.Contains(names(worker), name) || !slices.Contains(names(lead), name) {
			t.Errorf("%s is not for leads alone", name)
		}
	}
	lead.Spawns = false
	if list := strings.Join(names(lead), " "); strings.Contains(list, "spawn_") || !strings.Contains(list, "actor_wait") {
		t.Errorf("a lead of a run without a launcher sees %s", list)
	}
	groups, err := tools.ParseGroups("leases,queue")
	if err != nil {
		t.Fatal(err)
	}
	if list := strings.Join(names(tools.Viewer{Role: dispatch.Root, Groups: groups}), " "); strings.Contains(list, "kv_") || strings.Contains(list, "actor_") ||
		!strings.Contains(list, "lease_renew") || !strings.Contains(list, "task_claim") {
		t.Errorf("of leases and the queue there are %s", list)
	}
	if _, err := tools.ParseGroups("leases,lease"); err == nil || !strings.Contains(err.Error(), `"lease"`) {
		t.Errorf("an unknown group: %v", err)
	}
	for leads, destroys := range map[bool][]string{
		false: {"task_cancel"},
		true:  {"kv_set", "kv_cas", "kv_delete", "actor_cancel", "task_cancel", "lease_revoke"},
	} {
		for _, tool := range tools.Agents() {
			d := tool.Definition(leads)
			if destroys := slices.Contains(destroys, tool.Name); destroys != *d.Annotations.DestructiveHint && (leads || worker.Sees(tool)) {
				t.Errorf("%s, leads %v, destructive: %v", tool.Name, leads, !destroys)
			}
			if strings.Contains(string(d.RawInputSchema), `"override"`) && !leads {
				t.Errorf("workers are shown the override of %s", tool.Name)
			}
		}
	}
}

// What a client is told at connect names no tool that it is not shown, except in the first
// line, which is the protocol for all.
func TestInstructionsNameOnlyToolsThatAreShown(t *testing.T) {
	first := ""
	for _, v := range []tools.Viewer{
		{Role: dispatch.Root, Spawns: true},
		{Role: dispatch.Root},
		{Role: dispatch.Worker},
		{Role: dispatch.Root, Spawns: true, Groups: []string{"leases"}},
		{Role: dispatch.Root, Spawns: true, Groups: []string{"queue"}},
		{Role: dispatch.Root, Spawns: true, Groups: []string{"leases", "layer"}},
		{Role: dispatch.Worker, Groups: []string{"tree"}},
		{Role: dispatch.Worker, Groups: []string{"messages"}},
	} {
		line, rest, _ := strings.Cut(v.Instructions(), "\n")
		if first = cmp.Or(first, line); line != first {
			t.Errorf("for %+v the first line is %q", v, line)
		}
		for _, tool := range tools.Agents() {
			if named := regexp.MustCompile(`\b` + tool.Name + `\b`).MatchString(rest); named && !v.Sees(tool) {
				t.Errorf("%+v is told of %s, and is not shown it", v, tool.Name)
			}
		}
	}
	for _, role := range []dispatch.Role{dispatch.Operator, dispatch.Reader} { // they are shown no tool of agents
		told := tools.Viewer{Role: role}.Instructions()
		for _, tool := range tools.Agents() {
			if regexp.MustCompile(`\b` + tool.Name + `\b`).MatchString(told) {
				t.Errorf("a %v is told of %s: %s", role, tool.Name, told)
			}
		}
		if !strings.Contains(told, "leasehold actor token PATH") {
			t.Errorf("a %v is not told what it needs to take leases: %s", role, told)
		}
	}
	all := tools.Viewer{Role: dispatch.Root, Spawns: true}.Instructions()
	for _, name := range []string{"lease_acquire is", "task_claim", "spawn_worker", "actor_report"} {
		if !strings.Contains(all, name) {
			t.Errorf("a lead is not told of %s: %s", name, all)
		}
	}
}

// Some clients pass on the descriptions of arguments but not their bounds and
// defaults, so the descriptions contain both.
func TestDescriptionsSayBoundsAndDefaults(t *testing.T) {
	for _, tool := range tools.Agents() {
		var listed struct {
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal(tool.Definition(true).RawInputSchema, &listed); err != nil {
			t.Fatal(err)
		}
		for name, s := range tool.Input().Properties {
			said := listed.Properties[name].Description
			for _, bound := range []*float64{s.Minimum, s.Maximum} {
				if bound != nil && s.Maximum != nil && !strings.Contains(said, string(mustJSON(t, *bound))) {
					t.Errorf("%s says nothing of the bound %v of %s: %q", tool.Name, *bound, name, said)
				}
			}
			for _, bound := range []*int{s.MinItems, s.MaxItems} {
				if bound != nil && *bound > 1 && !strings.Contains(said, string(mustJSON(t, *bound))) {
					t.Errorf("%s says nothing of the bound %v of %s: %q", tool.Name, *bound, name, said)
				}
			}
			if def := strings.Trim(string(s.Default), `"`); def != "" && def != "false" && !strings.Contains(said, "default "+def) {
				t.Errorf("%s does not say that %s is %s if it is left out: %q", tool.Name, name, def, said)
			}
		}
	}
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
