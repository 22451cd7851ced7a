package setup

import (
	"path/filepath"

	"github.com/leasehold/leasehold/dispatch/agent"
)

// crush is Crush. The time limit of its servers is for their start, and for a ping before
// each call. A call itself has none.
var crush = client{
	name: "crush", title: "Crush",
	found: func(m machine) bool { return m.has("crush", m.crushDir()) },
	files: func(m machine, project bool) []file {
		dir := m.crushDir()
		text := instructions(dir, "CRUSH.md")
		if project {
			dir, text = m.top, instructions(m.top, "AGENTS.md")
		}
		members := []setting{{name: "type", value: "stdio", any: true, launch: true}}
		members = append(members, launch(m)...)
		return []file{
			{path: filepath.Join(dir, "crush.json"), text: jsonText{}, want: config{
				entry:   []string{"mcp", "leasehold"},
				members: append(members, setting{name: "timeout", value: startSeconds, least: 10}),
				elements: []listed{{
					path: []string{"hooks", "PreToolUse"},
					value: object{
						{name: "command", value: m.hookCommand("crush", project)},
						{name: "timeout", value: agent.HookTimeout},
					},
					mark: " hook crush",
				}},
			}},
			text,
		}
	},
	note: func(bool) string {
		return "Crush asks before a tool is used; name those of leasehold in permissions.allowed_tools of crush.json, as mcp_leasehold_run_lease_acquire, to be asked no more"
	},
}

func (m machine) crushDir() string {
	if dir := m.getenv("CRUSH_GLOBAL_CONFIG"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(m.dir("XDG_CONFIG_HOME", ".config"), "crush")
}
