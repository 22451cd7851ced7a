package setup

import "path/filepath"

// codex is the Codex CLI. When it may not ask the user, it refuses tools that are not
// approved. By default it makes one call at a time. It passes a server only the
// variables that env_vars names.
var codex = client{
	name: "codex", title: "Codex",
	found: func(m machine) bool { return m.has("codex", m.dir("CODEX_HOME", ".codex")) },
	files: func(m machine, project bool) []file {
		dir := m.dir("CODEX_HOME", ".codex")
		text := instructions(dir, "AGENTS.md")
		if project {
			dir, text = filepath.Join(m.top, ".codex"), instructions(m.top, "AGENTS.md")
		}
		return []file{
			{path: filepath.Join(dir, "config.toml"), text: tomlText{}, want: config{
				entry: []string{"mcp_servers", "leasehold"},
				members: append(
					launch(m),
					setting{name: "env_vars", value: passed, launch: true, contain: true},
					setting{name: "startup_timeout_sec", value: startSeconds, least: 10},
					setting{name: "tool_timeout_sec", value: callSeconds, least: leastCall},
					setting{name: "supports_parallel_tool_calls", value: true},
					setting{name: "default_tools_approval_mode", value: "approve"},
				),
			}},
			{path: filepath.Join(dir, "hooks.json"), text: jsonText{}, want: config{elements: m.hookLists("codex", 1, project)}},
			text,
		}
	},
	note: func(project bool) string {
		const trust = "Codex runs no hook before you have trusted it: start codex once, open /hooks and trust those of leasehold. Until then it writes to files that others have leased"
		if project {
			return "Codex reads a project's configuration once you have trusted its folder. " + trust
		}
		return trust
	},
}

// passed lists the variables that decide which daemon is found, and who connects.
var passed = []string{
	"LEASEHOLD_TOKEN", "LEASEHOLD_RUN", "LEASEHOLD_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
}
