package agent

import "encoding/json"

// callTimeout is the time-out for tool calls that clients are configured with.
// A call to Leasehold waits at most 50 s; the rest is a reserve for busy
// machines.
const (
	callTimeout  = 600 // seconds
	startTimeout = 30
)

// mcpServer is an entry of mcpServers, in the format of Claude Code and Gemini
// CLI.
type mcpServer struct {
	Type         string            `json:"type,omitempty"`
	Command      string            `json:"command"`
	Args         []string          `json:"args"`
	Env          map[string]string `json:"env"`
	Timeout      int               `json:"timeout"` // ms
	AlwaysLoad   bool              `json:"alwaysLoad,omitempty"`
	Trust        bool              `json:"trust,omitempty"`
	IncludeTools []string          `json:"includeTools,omitempty"`
}

// server returns the entry for Leasehold as an MCP server over stdio. Variables
// are given as references in the syntax of the client.
func (t Task) server(reference func(name string) string) mcpServer {
	s := mcpServer{Command: t.Leasehold, Args: []string{"mcp"}, Timeout: callTimeout * 1000, Env: make(map[string]string)}
	for _, name := range t.variableNames() {
		s.Env[name] = reference(name)
	}
	return s
}

func inBraces(name string) string { return "${" + name + "}" }

// writeServers writes {"mcpServers": {"leasehold": …}}, which Claude Code and
// many other clients read. AlwaysLoad is needed because Claude Code starts
// before its servers are ready, and otherwise looks for their tools only when
// it thinks that it needs one.
func (t Task) writeServers() (file string, err error) {
	s := t.server(inBraces)
	s.Type, s.AlwaysLoad = "stdio", true
	return t.writeJSON("mcp.json", map[string]any{"mcpServers": map[string]mcpServer{"leasehold": s}})
}

func (t Task) writeJSON(name string, v any) (file string, err error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", err
	}
	return t.write(name, append(text, '\n'))
}
