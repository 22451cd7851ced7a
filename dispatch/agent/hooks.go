package agent

import (
	_ "embed"
	"encoding/json"
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
	text, err := json.Marshal(command)
	if err != nil {
		panic("agent: " + err.Error()) // of a string
	}
	return strings.Replace(openCodePlugin, "LEASEHOLD_COMMAND", string(text), 1)
}
