package setup

import (
	"os"
	"path/filepath"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// opencode lists its servers directly below mcp, and since version 2 below mcp.servers.
// A file that already has mcp.servers is of version 2.
var opencode = likeOpenCode("opencode", "opencode", ".opencode")

// kilo is the Kilo Code CLI, a variant of opencode that has files of its own.
var kilo = likeOpenCode("kilo", "Kilo Code", ".kilo")

// likeOpenCode is a client that is configured as opencode is. plugins is where it looks for
// plugins in a project.
func likeOpenCode(name, title, plugins string) client {
	home := func(m machine) string { return filepath.Join(m.dir("XDG_CONFIG_HOME", ".config"), name) }
	return client{
		name: name, title: title,
		found: func(m machine) bool { return m.has(name, home(m)) },
		files: func(m machine, project bool) []file {
			dir, plugins := m.top, filepath.Join(m.top, plugins)
			if !project {
				dir, plugins = home(m), home(m)
			}
			path := filepath.Join(dir, name+".json")
			for _, ext := range []string{".jsonc", ".json"} {
				if _, err := os.Lstat(filepath.Join(dir, name+ext)); err == nil {
					path = filepath.Join(dir, name+ext)
					break
				}
			}
			return []file{
				{path: path, text: jsonText{}, alternative: m.openCodeEntry},
				{path: filepath.Join(plugins, "plugin", "leasehold.js"), text: pluginText{}, want: config{block: agent.OpenCodePlugin(m.command)}},
				instructions(dir, "AGENTS.md"),
			}
		},
		note: func(bool) string { return "" },
	}
}

// openCodeEntry returns the server's entry for a file of that text.
func (m machine) openCodeEntry(text []byte) config {
	members := []setting{
		{name: "type", value: "local", any: true, launch: true},
		{name: "command", value: []string{m.command, "mcp"}, program: true, launch: true},
	}
	if root, err := parseJSON(text); err == nil {
		mcp, _ := plain(&root).(map[string]any)
		servers, _ := at(mcp, []string{"mcp", "servers"})
		if below, ok := servers.(map[string]any); ok && below["type"] == nil {
			return config{
				entry: []string{"mcp", "servers", "leasehold"},
				members: append(members, setting{name: "timeout", any: true, value: object{
					{name: "startup", value: startSeconds * 1000},
					{name: "catalog", value: startSeconds * 1000},
					{name: "execution", value: callSeconds * 1000},
				}}),
			}
		}
	}
	return config{entry: []string{"mcp", "leasehold"}, members: append(members, callLimit)}
}
