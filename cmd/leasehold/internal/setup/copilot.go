package setup

import "path/filepath"

// copilot is the GitHub Copilot CLI. It offers a server's tools only if the server's
// entry names them. It reads every file in its directory of hooks. A project's hooks
// apply once its folder is trusted.
var copilot = client{
	name: "copilot", title: "Copilot CLI",
	found: func(m machine) bool { return m.has("copilot", m.dir("COPILOT_HOME", ".copilot")) },
	files: func(m machine, project bool) []file {
		dir := m.dir("COPILOT_HOME", ".copilot")
		servers, text := filepath.Join(dir, "mcp-config.json"), instructions(dir, "copilot-instructions.md")
		hooks := filepath.Join(dir, "hooks", "leasehold.json")
		if project {
			servers, text = filepath.Join(m.top, ".github", "mcp.json"), instructions(m.top, "AGENTS.md")
			hooks = filepath.Join(m.top, ".github", "hooks", "leasehold.json")
		}
		members := []setting{{name: "type", value: "local", any: true, launch: true}}
		members = append(members, launch(m)...)
		return []file{
			{path: servers, text: jsonText{}, want: config{
				entry:   []string{"mcpServers", "leasehold"},
				members: append(members, setting{name: "tools", value: []string{"*"}, any: true}, callLimit),
			}},
			{path: hooks, text: jsonText{}, want: config{elements: m.hookLists("copilot", 1, project)}},
			text,
		}
	},
	note: func(bool) string {
		return "Copilot CLI asks before a tool is used; start it with --allow-tool=leasehold to be asked no more"
	},
}
