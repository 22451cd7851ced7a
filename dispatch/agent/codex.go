package agent

import (
	"encoding/json"
	"maps"
	"slices"
)

// configureCodex runs codex exec. Flags whose values are TOML add the server to
// the user's own configuration, which has the account. Codex passes a server
// only those variables that env_vars names. Without a user to ask, it refuses a
// tool that needs approval unless the tool is approved in advance.
func configureCodex(_ Profile, t Task) (configuration, error) {
	flags := []string{"--json", "--skip-git-repo-check"}
	set := func(key string, value any) {
		text, err := json.Marshal(value) // strings, lists, numbers and booleans are written the same way in TOML
		if err != nil {
			panic("agent: " + err.Error()) // cannot happen for these types
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
	// A hook that is set by a flag has not been trusted by the user before.
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

// readCodex reads the events of --json. Codex reports tokens but no cost.
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
			o.Failed = "" // it recovered from an earlier error
		case "turn.failed":
			o.Failed = firstOf(event.Error.Message, "the turn failed")
		case "error":
			o.Failed = firstOf(event.Message, "it reports an error")
		}
	}
	return o
}
