package hook

import (
	"io"
	"strings"
)

// copilot is the Copilot CLI. For events that have the names of Claude Code's it uses the
// format of Claude Code, but calls a file "path", and gives a patch as an Edit. Its
// sub-agents share one connection, and its calls do not say which of them makes them. So
// the hook adds that to calls of our tools. A sub-agent that ends reports a Stop, whose
// answer is ignored, and then a SubagentStop. After the use of a tool its model is told
// only what is not inside "hookSpecificOutput".
var copilot = client{
	name: "copilot", guest: "copilot-cli", tells: []kind{before, stop, partyEnd},
	read: likeClaude(func(in claudeInput, e *event) {
		e.party = in.AgentID
		if e.kind == stop && e.party != "" {
			e.kind = other
		}
		e.ours = strings.HasPrefix(in.Tool, "leasehold-")
		switch in.Tool {
		case "Edit", "Write":
			patch, _ := in.Input.(string)
			e.files = append(named(in.text("path")), patched(patch)...)
		case "Bash":
			e.shell = true
			e.use = fingerprint(in.text("command")) // Copilot gives no id of the use
		case "Agent", "Task", "write_agent":
			e.delegates = true
		}
		if e.ours && e.kind == before && e.party != "" {
			e.input = map[string]any{}
			if input, ok := in.Input.(map[string]any); ok {
				e.input = input
			}
			e.input["as"] = e.party
		}
	}),
	answer: func(out io.Writer, e event, v verdict) error {
		if e.kind == after && v.note != "" {
			return writeJSON(out, map[string]string{"additionalContext": v.note})
		}
		if e.input == nil {
			return answerClaude(out, e, v)
		}
		type specific struct {
			Event string         `json:"hookEventName"`
			Input map[string]any `json:"updatedInput"`
		}
		return writeJSON(out, struct {
			Specific specific `json:"hookSpecificOutput"`
		}{specific{e.name, e.input}})
	},
}
