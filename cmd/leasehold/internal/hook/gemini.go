package hook

import (
	"io"
	"strings"
)

// gemini is the Gemini CLI.
var gemini = client{
	name: "gemini", guest: "gemini-cli", tells: []kind{begin, after, stop},
	read: likeClaude(func(in claudeInput, e *event) {
		e.ours = strings.HasPrefix(in.Tool, "mcp_leasehold_")
		switch in.Event {
		case "BeforeTool":
			e.kind = before
		case "AfterTool": // if the tool has failed, its model reads the error alone
			e.kind = after
			response, _ := in.Response.(map[string]any)
			e.unheard = response["error"] != nil
		case "AfterAgent":
			e.kind = stop
		}
		switch in.Tool {
		case "write_file", "replace", "edit":
			e.files = named(in.text("file_path"))
		case "run_shell_command":
			e.shell = true
			e.use = fingerprint(in.text("command")) // Gemini gives no id of the use
		}
	}),
	answer: func(out io.Writer, e event, v verdict) error {
		type specific struct {
			Context string `json:"additionalContext"`
		}
		type answer struct {
			Decision string    `json:"decision,omitempty"`
			Reason   string    `json:"reason,omitempty"`
			Message  string    `json:"systemMessage,omitempty"`
			Specific *specific `json:"hookSpecificOutput,omitempty"`
		}
		switch {
		case v.refuse != "":
			return writeJSON(out, answer{Decision: "deny", Reason: v.refuse})
		case v.note != "" && e.kind == stop:
			return writeJSON(out, answer{Decision: "block", Reason: v.note})
		case v.note != "" && (e.kind == begin || e.kind == after):
			return writeJSON(out, answer{Specific: &specific{v.note}, Message: v.note})
		case v.note != "":
			return writeJSON(out, answer{Message: v.note})
		}
		return nil
	},
}
