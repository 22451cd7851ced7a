package setup

import "path/filepath"

// claude is Claude Code. It offers a server's tools only through a search unless the
// server's entry has alwaysLoad. It asks before each call unless the permissions name
// the server. Its hooks guard what it writes. A project's permissions apply once its
// folder is trusted.
var claude = client{
	name: "claude", title: "Claude Code",
	found: func(m machine) bool { return m.has("claude", m.dir("CLAUDE_CONFIG_DIR", ".claude")) },
	files: func(m machine, project bool) []file {
		dir := m.dir("CLAUDE_CONFIG_DIR", ".claude")
		servers, text := filepath.Join(m.home, ".claude.json"), instructions(dir, "CLAUDE.md")
		if filepath.IsAbs(m.getenv("CLAUDE_CONFIG_DIR")) {
			servers = filepath.Join(dir, ".claude.json")
		}
		wanted := []listed{{path: []string{"permissions", "allow"}, value: "mcp__leasehold"}}
		if project {
			dir = filepath.Join(m.top, ".claude")
			servers, text = filepath.Join(m.top, ".mcp.json"), instructions(m.top, "CLAUDE.md")
			wanted = append(wanted, listed{path: []string{"enabledMcpjsonServers"}, value: "leasehold"})
		}
		return []file{
			{path: servers, text: jsonText{}, want: config{
				entry:   []string{"mcpServers", "leasehold"},
				members: append(launch(m), callLimit, setting{name: "alwaysLoad", value: true}),
			}},
			{path: filepath.Join(dir, "settings.json"), text: jsonText{}, want: config{elements: append(wanted, m.hookLists("claude", 1, project)...)}},
			text,
		}
	},
	note: func(project bool) string {
		if project {
			return "Claude Code reads a project's permissions once you have trusted its folder"
		}
		return ""
	},
}
