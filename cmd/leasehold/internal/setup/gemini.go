package setup

import "path/filepath"

// gemini is the Gemini CLI. Without a terminal it offers only the tools of servers that
// it trusts.
var gemini = client{
	name: "gemini", title: "Gemini CLI",
	found: func(m machine) bool { return m.has("gemini", filepath.Join(m.geminiHome(), ".gemini")) },
	files: func(m machine, project bool) []file {
		dir := filepath.Join(m.geminiHome(), ".gemini")
		text := instructions(dir, "GEMINI.md")
		if project {
			dir, text = filepath.Join(m.top, ".gemini"), instructions(m.top, "GEMINI.md")
		}
		return []file{
			{path: filepath.Join(dir, "settings.json"), text: jsonText{}, want: config{
				entry:    []string{"mcpServers", "leasehold"},
				members:  append(launch(m), callLimit, setting{name: "trust", value: true}),
				elements: m.hookLists("gemini", 1000, project),
			}},
			text,
		}
	},
	note: func(bool) string {
		return "Gemini CLI starts no server in a folder that you have not trusted: answer its question, or set GEMINI_CLI_TRUST_WORKSPACE=true"
	},
}

func (m machine) geminiHome() string { return m.dir("GEMINI_CLI_HOME") }
