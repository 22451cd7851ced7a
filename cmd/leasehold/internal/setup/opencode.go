package setup

import (
	"os"
	"path/filepath"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// opencode lists its servers directly below mcp, and since version 2 below mcp.servers.
// A file that already has mcp.servers is of version 2.
var opencode = client{
	name: "opencode", title: "opencode",
	found: func(m machine) bool { return m.has("opencode", m.opencodeDir()) },
	files: func(m machine, project bool) []file {
		dir := m.opencodeDir()
		if project {
			dir = m.top
		}
		members := []setting{
			{name: "type", value: "local", any: true, launch: true},
			{name: "command", value: []string{m.command, "mcp"}, program: true, launch: true},
		}
		one := config{entry: []string{"mcp", "leasehold"}, members: append(members[:2:2], callLimit)}
		two := config{
			entry: []string{"mcp", "servers", "leasehold"},
			members: append(members[:2:2], setting{name: "timeout", any: true, value: object{
				{name: "startup", value: startSeconds * 1000},
				{name: "catalog", value: startSeconds * 1000},
				{name: "execution", value: callSeconds * 1000},
			}}),
		}
		path := filepath.Join(dir, "opencode.json")
		for _, name := range []string{"opencode.jsonc", "opencode.json"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				path = filepath.Join(dir, name)
				break
			}
		}
		choose := func(text []byte) config {
			if root, err := parseJSON(text); err == nil {
				mcp, _ := plain(&root).(map[string]any)
				if servers, ok := at(mcp, []string{"mcp", "servers"}); ok {
					if below, ok := servers.(map[string]any); ok && below["type"] == nil {
						return two
					}
				}
			}
			return one
		}
		plugins := filepath.Join(dir, "plugin")
		if project {
			plugins = filepath.Join(m.top, ".opencode", "plugin")
		}
		return []file{
			{path: path, text: jsonText{}, alternative: choose},
			{path: filepath.Join(plugins, "leasehold.js"), text: pluginText{}, want: config{block: agent.OpenCodePlugin(m.command)}},
			instructions(dir, "AGENTS.md"),
		}
	},
	note: func(bool) string { return "" },
}

func (m machine) opencodeDir() string {
	return filepath.Join(m.dir("XDG_CONFIG_HOME", ".config"), "opencode")
}
