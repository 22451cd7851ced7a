package agent

import (
	"encoding/json"
	"maps"
	"slices"
)

// configureCodex runs codex exec. Its server is told by flags, whose values are
// TOML, over the user's own configuration, which has the account. Codex gives a
// server none of its environment but what env_vars names, and without a person
// it refuses a tool that it would ask about, unless that is approved.
func configureCodex(_ Profile, t Task) (configuration, error) {
	flags := []string{"--json", "--skip-git-repo-check"}
	set := func(key string, value any) {
		text, err := json.Marshal(value) // strings, lists, numbers and truths are the same in TOML
		if err != nil {
			panic("agent: " + err.Error()) // of strings, lists, numbers and truths
		}
		flags = append(flags, "-c", "mcp_servers.leasehold."+key+"="+string(text))
	}
	set("command", t.Leasehold)
	set("args", []string{"mcp"})
	set("env_vars", t.variableNames())
	set("required", true)
	set("startup_timeout_sec", startTimeout)
	set("tool_timeout_sec", callTimeout)
	set("supports_parallel_tool_calls", true)
	set("default_tools_approval_mode", "approve")
	if len(t.Tools) > 0 {
		set("enabled_tools", t.Tools)
	}
	// A hook that is told by a flag is nobody's to trust before.
	groups := t.hookGroups(Codex, 1)
	for _, event := range slices.Sorted(maps.Keys(groups)) {
		flags = append(flags, "-c", "hooks."+event+"="+groups[event].inTOML())
	}
	flags = append(flags, "--dangerously-bypass-hook-trust")
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	return configuration{flags: flags, last: []string{"-"}}, nil
}

// readCodex reads the events of --json. Codex reports tokens and no cost.
func readCodex(in *lines) (o Outcome) {
	for line := range in.objects() {
		var event struct {
			Type    string
			Message string
			Error   struct{ Message string }
			Item    struct{ Type, Text string }
		}
		if !understood(line, &event) {
			continue
		}
		switch event.Type {
		case "item.completed":
			if event.Item.Type == "agent_message" {
				o.Result = event.Item.Text
			}
		case "turn.completed":
			o.Failed = "" // an error before it was got over
		case "turn.failed":
			o.Failed = firstOf(event.Error.Message, "the turn failed")
		case "error":
			o.Failed = firstOf(event.Message, "it reports an error")
		}
	}
	return o
}
