package setup

import "path/filepath"

// vscode is Visual Studio Code. It starts servers in a directory of its own, so the
// arguments name the open folder.
var vscode = client{
	name: "vscode", title: "VS Code",
	found: func(m machine) bool { return m.has("code", m.vscodeDir()) },
	files: func(m machine, project bool) []file {
		dir := m.vscodeDir()
		if project {
			dir = filepath.Join(m.top, ".vscode")
		}
		members := []setting{{name: "type", value: "stdio", any: true, launch: true}}
		files := []file{{path: filepath.Join(dir, "mcp.json"), text: jsonText{}, want: config{
			entry: []string{"servers", "leasehold"}, members: append(members, launch(m, "--directory", workspace)...),
		}}}
		if project {
			files = append(files, instructions(m.top, "AGENTS.md"))
		}
		return files
	},
	note: func(bool) string { return untried("VS Code") },
}

// vscodeDir returns the directory of the user's VS Code settings.
func (m machine) vscodeDir() string {
	if onMac() {
		return filepath.Join(m.home, "Library", "Application Support", "Code", "User")
	}
	return filepath.Join(m.dir("XDG_CONFIG_HOME", ".config"), "Code", "User")
}
