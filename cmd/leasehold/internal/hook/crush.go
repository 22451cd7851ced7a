package hook

import "strings"

// crush is Crush. It has one event, before the use of a tool, and understands the answers
// that Claude Code does. Its sub-agents only read, and run no hooks.
var crush = client{
	name: "crush", guest: "crush", tells: []kind{before},
	read: func(stdin []byte) (event, error) {
		var in struct {
			Event string
			Dir   string `json:"cwd"`
			Tool  string `json:"tool_name"`
			Input any    `json:"tool_input"`
		}
		if err := readJSON(stdin, &in); err != nil {
			return event{}, err
		}
		e := event{name: in.Event, dir: in.Dir, ours: strings.HasPrefix(in.Tool, "mcp_leasehold_")}
		if in.Event == "PreToolUse" {
			e.kind = before
		}
		switch in.Tool {
		case "write", "edit", "multiedit", "lsp_replace_symbol", "download":
			e.files = named(textOf(in.Input, "file_path"))
		}
		return e, nil
	},
	answer: answerClaude,
}
