package hook

import "io"

// kimi is Kimi Code. It uses the events of Claude Code with other names for the fields of a
// tool. Its hooks do not say which sub-agent acts, so its sub-agents and their agent are one
// party. It ignores what a hook answers after the use of a tool. At the end of a turn its
// model reads the reason of a refusal, and goes on.
var kimi = client{
	name: "kimi", guest: "kimi-code", tells: []kind{stop},
	read: likeClaude(func(in claudeInput, e *event) {
		switch in.Tool {
		case "Write", "Edit":
			e.files = named(in.text("path"))
		case "Bash":
			e.shell = true
			e.use = fingerprint(in.text("command")) // Kimi's ids of uses are those of its model
		}
	}),
	answer: func(out io.Writer, e event, v verdict) error {
		if e.kind == stop && v.note != "" {
			v.refuse = v.note
		}
		return answerClaude(out, e, v)
	},
}
