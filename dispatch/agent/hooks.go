package agent

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// A Hook is a client's event for which leasehold hook runs.
type Hook struct {
	Event   string
	Matcher string // for names of tools; "": the event has no matcher
}

// HookTimeout is how long a client waits for a hook, in seconds. See [Hook.Timeout].
const HookTimeout = 15

// Timeout returns how long a client waits for the hook, in seconds. Codex waits 3 s at most
// when a session ends, and warns its user at each start if it is told to wait longer.
func (h Hook) Timeout(client string) int {
	if client == Codex && h.Event == "SessionEnd" {
		return 3
	}
	return HookTimeout
}

// Hooks returns the events of a client for which leasehold hook must run.
// opencode has no hooks but plugins; see [OpenCodePlugin].
func Hooks(client string) []Hook {
	switch client {
	case Claude:
		return []Hook{{"PreToolUse", "*"}, {"PostToolUse", "Bash|PowerShell"}, {"PostToolUseFailure", "Bash|PowerShell"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionStart", ""}, {"SessionEnd", ""}}
	case Codex:
		return []Hook{{"PreToolUse", ".*"}, {"PostToolUse", "Bash"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionStart", ""}, {"SessionEnd", ""}}
	case Gemini:
		return []Hook{{"BeforeTool", ".*"}, {"AfterTool", ".*"}, {"AfterAgent", ""}, {"SessionStart", ""}, {"SessionEnd", ""}}
	case "copilot":
		return []Hook{{"PreToolUse", "*"}, {"PostToolUse", "Bash"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionEnd", ""}}
	case "qwen":
		return []Hook{{"PreToolUse", "*"}, {"PostToolUse", "*"}, {"PostToolUseFailure", "*"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionStart", ""}, {"SessionEnd", ""}}
	}
	return nil
}

//go:embed opencode_plugin.js
var openCodePlugin string

// OpenCodePlugin returns the plugin for opencode that runs leasehold hook.
// command starts leasehold.
func OpenCodePlugin(command string) string {
	return strings.Replace(openCodePlugin, "LEASEHOLD_COMMAND", quoted(command), 1)
}

// A hookGroup is a matcher and its commands, in the format of Claude Code and
// Gemini CLI.
type hookGroup struct {
	Matcher string        `json:"matcher,omitempty"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

// hookGroups returns the hooks of a client, by event. unit is the number of the
// client's time units in a second.
func (t Task) hookGroups(client string, unit int) map[string]hookGroup {
	groups := make(map[string]hookGroup)
	for _, h := range Hooks(client) {
		groups[h.Event] = hookGroup{h.Matcher, []hookCommand{{"command", HookCommand(t.Leasehold, client), h.Timeout(client) * unit}}}
	}
	return groups
}

// HookCommand returns the shell command for a hook. program starts leasehold.
func HookCommand(program, client string) string {
	if strings.ContainsAny(program, " \t\"'\\$&;()<>|*?[]`#~!") {
		program = "'" + strings.ReplaceAll(program, "'", `'\''`) + "'"
	}
	return program + " hook " + client
}

// inTOML returns the group in TOML's inline form, for a flag of Codex.
func (g hookGroup) inTOML() string {
	matcher := ""
	if g.Matcher != "" {
		matcher = "matcher=" + quoted(g.Matcher) + ","
	}
	h := g.Hooks[0]
	return fmt.Sprintf("[{%shooks=[{type=%s,command=%s,timeout=%d}]}]", matcher, quoted(h.Type), quoted(h.Command), h.Timeout)
}

// quoted returns s as a JSON string, which is also a TOML string.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("agent: " + err.Error()) // cannot happen for a string
	}
	return string(text)
}
