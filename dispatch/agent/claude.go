package agent

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// callTimeout is how long a client is told to let a call take. A call of
// Leasehold waits 50 s at most; the rest is for machines that are busy.
const (
	callTimeout  = 600 // seconds
	startTimeout = 30
)

// mcpServer is an entry of mcpServers, as Claude Code and Gemini CLI read it.
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

// server is Leasehold as an MCP server over stdio, with each variable by
// reference in the words of the client.
func (t Task) server(reference func(name string) string) mcpServer {
	s := mcpServer{Command: t.Leasehold, Args: []string{"mcp"}, Timeout: callTimeout * 1000, Env: make(map[string]string)}
	for _, name := range t.variableNames() {
		s.Env[name] = reference(name)
	}
	return s
}

func inBraces(name string) string { return "${" + name + "}" }

// writeServers writes {"mcpServers": {"leasehold": …}}, which Claude Code and
// many others read. Claude Code begins before its servers are there, and looks
// for their tools only when it thinks that it needs one, but for those that it
// always loads.
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

// configureClaude runs Claude Code headless. --strict-mcp-config leaves out
// the servers of the user, of which one may be leasehold as somebody else. Its
// flags take several values each, so what follows a list must be a flag.
func configureClaude(_ Profile, t Task) (configuration, error) {
	file, err := t.writeServers()
	if err != nil {
		return configuration{}, err
	}
	flags := []string{"-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config", "--mcp-config", file}
	allowed := []string{"mcp__leasehold"} // all of it
	if len(t.Tools) > 0 {
		allowed = make([]string, len(t.Tools))
		for i, tool := range t.Tools {
			allowed[i] = "mcp__leasehold__" + tool
		}
	}
	flags = append(flags, "--allowedTools", strings.Join(slices.Concat(allowed, t.Allow), ","))
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	if t.BudgetUSD > 0 {
		flags = append(flags, "--max-budget-usd", strconv.FormatFloat(t.BudgetUSD, 'f', -1, 64))
	}
	// It refuses to start within itself, and this is how it knows.
	return configuration{flags: flags, file: file, drop: []string{"CLAUDECODE"}}, nil
}

// readClaude reads stream-json, whose last line is the result, or the one
// object of json, which is that line.
func readClaude(in *lines) (o Outcome) {
	for line := range in.objects() {
		var event struct {
			Type             string
			Subtype          string
			IsError          bool `json:"is_error"`
			Result           string
			Errors           []string
			StructuredOutput json.RawMessage `json:"structured_output"`
			TotalCostUSD     *float64        `json:"total_cost_usd"`
		}
		if !understood(line, &event) || event.Type != "result" {
			continue
		}
		o = Outcome{Result: event.Result, CostUSD: event.TotalCostUSD, ResultJSON: event.StructuredOutput}
		if event.IsError || event.Subtype != "" && event.Subtype != "success" {
			o.Failed = firstOf(strings.Join(event.Errors, "; "), event.Result, event.Subtype, "it says that it failed")
		}
	}
	return o
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// configureCommand knows of its command nothing but what the user says.
func configureCommand(p Profile, t Task) (configuration, error) {
	if !p.mentions("{mcp_config}") {
		return configuration{}, nil
	}
	file, err := t.writeServers()
	return configuration{file: file}, err
}
