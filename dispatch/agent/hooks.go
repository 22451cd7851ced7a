package agent

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

// A Hook is an event of a client for which leasehold hook runs.
type Hook struct {
	Event   string
	Matcher string // of the names of tools; "": the event has none
}

// HookTimeout is how long a client waits for a hook, in seconds.
const HookTimeout = 15

// Hooks are the events of a client that leasehold hook has to know of. opencode has
// none, but a plugin; see [OpenCodePlugin].
func Hooks(client string) []Hook {
	switch client {
	case Claude:
		return []Hook{{"PreToolUse", "*"}, {"PostToolUse", "Bash|PowerShell"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionEnd", ""}}
	case Codex:
		return []Hook{{"PreToolUse", ".*"}, {"PostToolUse", "Bash"}, {"Stop", ""}, {"SubagentStop", ""}, {"SessionEnd", ""}}
	case Gemini:
		return []Hook{{"BeforeTool", ".*"}, {"AfterTool", ".*"}, {"AfterAgent", ""}, {"SessionEnd", ""}}
	}
	return nil
}

//go:embed opencode_plugin.js
var openCodePlugin string

// OpenCodePlugin is the plugin that runs leasehold hook, which command starts.
func OpenCodePlugin(command string) string {
	return strings.Replace(openCodePlugin, "LEASEHOLD_COMMAND", quoted(command), 1)
}

// A hookGroup is a matcher and what runs, as Claude Code and Gemini CLI have it.
type hookGroup struct {
	Matcher string        `json:"matcher,omitempty"`
	Hooks   []hookCommand `json:"hooks"`
}

type hookCommand struct {
	Type    string `json:"type"`
	Command string `json:"command"`
	Timeout int    `json:"timeout"`
}

// hookGroups are the hooks of a client, by event. unit is what a second is in its
// words.
func (t Task) hookGroups(client string, unit int) map[string]hookGroup {
	groups := make(map[string]hookGroup)
	for _, h := range Hooks(client) {
		groups[h.Event] = hookGroup{h.Matcher, []hookCommand{{"command", HookCommand(t.Leasehold, client), HookTimeout * unit}}}
	}
	return groups
}

// HookCommand is what a shell runs for a hook, where leasehold is started by program.
func HookCommand(program, client string) string {
	if strings.ContainsAny(program, " \t\"'\\$&;()<>|*?[]`#~!") {
		program = "'" + strings.ReplaceAll(program, "'", `'\''`) + "'"
	}
	return program + " hook " + client
}

// inTOML is the group in the inline form of a flag of Codex.
func (g hookGroup) inTOML() string {
	matcher := ""
	if g.Matcher != "" {
		matcher = "matcher=" + quoted(g.Matcher) + ","
	}
	h := g.Hooks[0]
	return fmt.Sprintf("[{%shooks=[{type=%s,command=%s,timeout=%d}]}]", matcher, quoted(h.Type), quoted(h.Command), h.Timeout)
}

// quoted is a string in JSON, which is one in TOML, too.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic("agent: " + err.Error()) // of a string
	}
	return string(text)
}
