package setup

import "path/filepath"

// qwen is Qwen Code. It hides the tools of a server behind a search unless the server's
// entry has alwaysLoadTools. It takes the timeout of a hook for milliseconds if it is at
// least 1000; older releases always do.
var qwen = client{
	name: "qwen", title: "Qwen Code",
	found: func(m machine) bool { return m.has("qwen", m.dir("QWEN_HOME", ".qwen")) },
	files: func(m machine, project bool) []file {
		dir := m.dir("QWEN_HOME", ".qwen")
		text := instructions(dir, "QWEN.md")
		if project {
			dir, text = filepath.Join(m.top, ".qwen"), instructions(m.top, "AGENTS.md")
		}
		return []file{
			{path: filepath.Join(dir, "settings.json"), text: jsonText{}, want: config{
				entry:    []string{"mcpServers", "leasehold"},
				members:  append(launch(m), callLimit, setting{name: "trust", value: true}, setting{name: "alwaysLoadTools", value: true}),
				elements: m.hookLists("qwen", 1000, project),
			}},
			text,
		}
	},
	note: func(bool) string { return "" },
}
