package hook

import (
	"io"
	"maps"
	"strings"
)

// copilot is the Copilot CLI. For events that have the names of Claude Code's it uses the
// format of Claude Code, but calls a file "path", and gives a patch as an Edit. Its
// sub-agents share one connection, and its calls do not say which of them makes them. So
// the hook adds that to calls of our tools. A sub-agent that ends reports a Stop, whose
// answer is ignored, and then a SubagentStop.
var copilot = client{
	name: "copilot", guest: "copilot-cli", tells: []kind{before, stop, partyEnd},
	read: func(stdin []byte) (event, error) {
		in, e, err := readClaude(stdin)
		if err != nil {
			return e, err
		}
		var raw struct {
			Input lenient[any] `json:"tool_input"`
		}
		if err := readJSON(stdin, &raw); err != nil {
			return e, err
		}
		patch, _ := raw.Input.is.(string)
		input, _ := raw.Input.is.(map[string]any)
		e.party = in.AgentID
		if e.kind == stop && e.party != "" {
			e.kind = other
		}
		e.ours = strings.HasPrefix(in.Tool, "leasehold-")
		switch in.Tool {
		case "Edit", "Write":
			file, _ := input["path"].(string)
			e.files = append(named(file), patched(patch)...)
		case "Bash":
			e.shell = true
			e.use = fingerprint(string(in.Input.is.Command)) // Copilot gives no id of the use
		case "Agent", "Task":
			e.delegates = true
		}
		if e.ours && e.kind == before && e.party != "" {
			e.input = maps.Clone(input)
			if e.input == nil {
				e.input = map[string]any{}
			}
			e.input["as"] = e.party
		}
		return e, nil
	},
	answer: func(out io.Writer, e event, v verdict) error {
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
