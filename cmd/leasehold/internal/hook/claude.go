package hook

import (
	"io"
	"slices"
	"strings"
)

// claude is Claude Code. Codex uses the same format.
var claude = client{
	name: "claude", guest: "claude-code", pid: "CLAUDE_PID", home: "CLAUDE_PROJECT_DIR", tells: []kind{begin, before, stop, partyEnd},
	read: likeClaude(func(in claudeInput, e *event) {
		e.party = in.AgentID
		switch in.Tool {
		case "Edit", "MultiEdit", "Write", "NotebookEdit":
			e.files = named(in.text("file_path"), in.text("notebook_path"))
		case "Bash", "PowerShell":
			e.shell = true
		case "Agent", "Task", "Workflow":
			e.delegates = true
		case "SendMessage": // an agent that reports to its lead keeps its files
			e.delegates = !slices.Contains([]string{"main", "team-lead"}, in.text("to"))
		}
	}),
	answer: answerClaude,
}

// claudeInput is the JSON that a hook of Claude Code reads.
type claudeInput struct {
	Session string `json:"session_id"`
	Dir     string `json:"cwd"`
	Event   string `json:"hook_event_name"`
	Source  string `json:"source"` // of a SessionStart
	Tool    string `json:"tool_name"`
	ToolUse string `json:"tool_use_id"`
	AgentID string `json:"agent_id"`
	Input   any    `json:"tool_input"`

	Response any `json:"tool_response"`
}

// text is textOf the input of the tool.
func (in claudeInput) text(name string) string {
	return textOf(in.Input, name)
}

// likeClaude reads the input that Claude Code has in common with Codex, Gemini CLI, Copilot
// CLI, Qwen Code and Kimi Code. special reads the rest.
func likeClaude(special func(claudeInput, *event)) func(stdin []byte) (event, error) {
	return func(stdin []byte) (event, error) {
		var in claudeInput
		if err := readJSON(stdin, &in); err != nil {
			return event{}, err
		}
		e := in.event()
		special(in, &e)
		return e, nil
	}
}

// event returns what all of these clients report alike.
func (in claudeInput) event() event {
	e := event{name: in.Event, dir: in.Dir, use: in.ToolUse, ours: ours(in.Tool)}
	switch in.Event {
	case "SessionStart":
		e.kind, e.compacted, e.resumed = begin, in.Source == "compact", in.Source == "resume" || in.Source == "fork"
	case "PreToolUse":
		e.kind = before
	case "PostToolUse", "PostToolUseFailure":
		e.kind = after
	case "Stop":
		e.kind = stop
	case "SubagentStop":
		e.kind = partyEnd
	case "SessionEnd":
		e.kind = sessionEnd
	}
	return e
}

// ours reports whether a tool is Leasehold's. Clients name its tools with one prefix if
// setup configured the server, and with another if a plugin did.
func ours(tool string) bool {
	return strings.HasPrefix(tool, "mcp__leasehold__") || strings.HasPrefix(tool, "mcp__plugin_leasehold_leasehold__")
}

// named returns the names that are not empty.
func named(names ...string) (list []string) {
	for _, name := range names {
		if name != "" {
			list = append(list, name)
		}
	}
	return list
}

// answerClaude writes a refusal, or a note for the model. It never allows a call: the
// client's own permissions decide that.
func answerClaude(out io.Writer, e event, v verdict) error {
	type specific struct {
		Event    string `json:"hookEventName"`
		Decision string `json:"permissionDecision,omitempty"`
		Reason   string `json:"permissionDecisionReason,omitempty"`
		Context  string `json:"additionalContext,omitempty"`
	}
	type answer struct {
		Specific *specific `json:"hookSpecificOutput,omitempty"`
		Decision string    `json:"decision,omitempty"`
		Reason   string    `json:"reason,omitempty"`
		Message  string    `json:"systemMessage,omitempty"`
	}
	switch {
	case v.refuse != "":
		return writeJSON(out, answer{Specific: &specific{Event: e.name, Decision: "deny", Reason: v.refuse}})
	case v.note != "" && (e.kind == begin || e.kind == before || e.kind == after):
		return writeJSON(out, answer{Specific: &specific{Event: e.name, Context: v.note}, Message: v.note})
	case v.note != "" && (e.kind == stop || e.kind == partyEnd):
		return writeJSON(out, answer{Decision: "block", Reason: v.note})
	case v.note != "":
		return writeJSON(out, answer{Message: v.note})
	}
	return nil
}
