package setup

import "path/filepath"

// cursor is the Cursor editor. It starts servers in a directory of its own, so the
// arguments name the open folder.
var cursor = client{
	name: "cursor", title: "Cursor",
	found: func(m machine) bool { return m.has("cursor", filepath.Join(m.home, ".cursor")) },
	files: func(m machine, project bool) []file {
		dir := filepath.Join(m.home, ".cursor")
		if project {
			dir = filepath.Join(m.top, ".cursor")
		}
		files := []file{{path: filepath.Join(dir, "mcp.json"), text: jsonText{}, want: config{
			entry: []string{"mcpServers", "leasehold"}, members: launch(m, "--directory", workspace),
		}}}
		if project {
			files = append(files, instructions(m.top, "AGENTS.md"))
		}
		return files
	},
	note: func(bool) string { return untried("Cursor") },
}

// workspace is the variable that editors replace by the open folder.
const workspace = "${workspaceFolder}"

func untried(title string) string {
	return "the configuration of " + title + " follows its documentation and was not tried with it"
}
