package agent

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// configureClaude runs Claude Code headless. --strict-mcp-config leaves out the
// user's MCP servers, because one of them may be leasehold as a different
// actor. Its flags take several values each, so a list must be followed by a
// flag.
func configureClaude(_ Profile, t Task) (configuration, error) {
	file, err := t.writeServers()
	if err != nil {
		return configuration{}, err
	}
	flags := []string{"-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config", "--mcp-config", file}
	allowed := []string{"mcp__leasehold"} // all tools of the server
	if len(t.Tools) > 0 {
		allowed = make([]string, len(t.Tools))
		for i, tool := range t.Tools {
			allowed[i] = "mcp__leasehold__" + tool
		}
	}
	hooks := map[string][]hookGroup{}
	for event, group := range t.hookGroups(Claude, 1) {
		hooks[event] = []hookGroup{group}
	}
	settings, err := json.Marshal(map[string]any{"hooks": hooks})
	if err != nil {
		return configuration{}, err
	}
	flags = append(flags, "--settings", string(settings)) // added to the user's settings
	flags = append(flags, "--allowedTools", strings.Join(slices.Concat(allowed, t.Allow), ","))
	if t.Model != "" {
		flags = append(flags, "--model", t.Model)
	}
	if t.BudgetUSD > 0 {
		flags = append(flags, "--max-budget-usd", strconv.FormatFloat(t.BudgetUSD, 'f', -1, 64))
	}
	// Claude Code refuses to start within itself, which it detects by this
	// variable.
	return configuration{flags: flags, file: file, drop: []string{"CLAUDECODE"}}, nil
}

// readClaude reads stream-json, whose last line is the result. It also reads
// the format json, which consists of only that line.
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
