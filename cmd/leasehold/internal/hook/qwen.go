package hook

import (
	"fmt"
	"io"
	"regexp"
)

// qwen is Qwen Code. It uses the format of Claude Code with the names of Gemini CLI's
// tools. Its sub-agents share one connection, its calls do not say which of them makes
// them, and a hook cannot change a call. So the hook refuses a call in which a sub-agent
// should name itself and does not, and says how to. A note reaches the model after the
// use of a tool, and not before it.
var qwen = client{
	name: "qwen", guest: "qwen-code", tells: []kind{begin, after, stop, partyEnd},
	read: likeClaude(func(in claudeInput, e *event) {
		e.party = in.AgentID
		switch in.Tool {
		case "write_file", "edit", "notebook_edit":
			e.files = named(in.text("file_path"), in.text("notebook_path"))
		case "run_shell_command":
			e.shell = true
		case "agent", "send_message", "workflow":
			e.delegates = true
		}
		if takesAs.MatchString(in.Tool) && e.kind == before && e.party != "" && in.text("as") != e.party {
			e.input = map[string]any{"as": e.party}
		}
	}),
	answer: func(out io.Writer, e event, v verdict) error {
		if e.input != nil {
			v.refuse = fmt.Sprintf("nothing has been done: the agents of this session share a connection, so call the tool again with as %q beside its other arguments, and do so whenever a tool of leasehold has the argument as", e.party)
		}
		return answerClaude(out, e, v)
	},
}

// takesAs matches the names of our tools that have the argument "as".
var takesAs = regexp.MustCompile(`^mcp__leasehold__(lease_acquire|lease_acquire_many|lease_renew|run_lease_acquire|task_claim|task_heartbeat)$`)
