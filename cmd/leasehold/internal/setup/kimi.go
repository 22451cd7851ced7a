package setup

import "path/filepath"

// kimi is Kimi Code. Its hooks are a list of tables in a file that it rewrites, which
// setup does not edit.
var kimi = client{
	name: "kimi", title: "Kimi Code",
	found: func(m machine) bool { return m.has("kimi", m.dir("KIMI_CODE_HOME", ".kimi-code")) },
	files: func(m machine, project bool) []file {
		dir := m.dir("KIMI_CODE_HOME", ".kimi-code")
		text := instructions(dir, "AGENTS.md")
		if project {
			dir, text = filepath.Join(m.top, ".kimi-code"), instructions(m.top, "AGENTS.md")
		}
		limit := callLimit
		limit.name = "toolTimeoutMs"
		return []file{
			{path: filepath.Join(dir, "mcp.json"), text: jsonText{}, want: config{
				entry: []string{"mcpServers", "leasehold"}, members: append(launch(m), limit),
			}},
			text,
		}
	},
	note: func(bool) string {
		return "setup does not write the hooks of Kimi Code, without which it writes to files that others have leased: add them to its config.toml, as the page on clients in the book shows"
	},
}
