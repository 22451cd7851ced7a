package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
)

// mcpServers reads {"mcpServers": {name: entry}}.
func mcpServers(text []byte) (map[string]entry, error) {
	var config struct {
		Servers map[string]entry `json:"mcpServers"`
	}
	err := json.Unmarshal(withoutComments(text), &config)
	return config.Servers, err
}

// claudeServers reads what claude mcp add writes: servers for all projects,
// and for this one.
func claudeServers(text []byte) (map[string]entry, error) {
	var config struct {
		Servers  map[string]entry `json:"mcpServers"`
		Projects map[string]struct {
			Servers map[string]entry `json:"mcpServers"`
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	servers := make(map[string]entry)
	for name, e := range config.Servers {
		servers[name] = e
	}
	here, _ := os.Getwd()
	for name, e := range config.Projects[here].Servers {
		servers[name] = e
	}
	return servers, nil
}

// opencodeServers reads {"mcp": {"servers": {name: entry}}}, or for version 1
// {"mcp": {name: entry}}.
func opencodeServers(text []byte) (map[string]entry, error) {
	var config struct{ MCP map[string]json.RawMessage }
	if err := json.Unmarshal(withoutComments(text), &config); err != nil {
		return nil, err
	}
	servers := make(map[string]entry)
	for name, raw := range config.MCP {
		if name == "servers" {
			if err := json.Unmarshal(raw, &servers); err != nil {
				return nil, err
			}
			continue
		}
		var e entry
		if json.Unmarshal(raw, &e) == nil { // else it is no server
			servers[name] = e
		}
	}
	return servers, nil
}

// withoutComments makes JSON of JSON with comments and commas at the end.
func withoutComments(text []byte) []byte {
	var out []byte
	for i := 0; i < len(text); i++ {
		next := string(text[i:min(i+2, len(text))])
		switch {
		case text[i] == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			out = append(out, text[i:min(end+1, len(text))]...)
			i = end
		case next == "//":
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case next == "/*":
			_, after, _ := strings.Cut(string(text[i+2:]), "*/")
			i = len(text) - len(after) - 1
		case text[i] == '}' || text[i] == ']':
			out = append(bytes.TrimSuffix(bytes.TrimRight(out, " \t\r\n"), []byte(",")), text[i])
		default:
			out = append(out, text[i])
		}
	}
	return out
}

// codexServers reads the tables [mcp_servers.NAME] of a TOML file, and of their
// values those that one line tells: enough for what is looked at.
func codexServers(text []byte) (map[string]entry, error) {
	servers := make(map[string]entry)
	var in entry
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if header, ok := strings.CutPrefix(line, "["); ok {
			in = nil
			header, _, _ = strings.Cut(header, "]")
			name, ok := strings.CutPrefix(strings.TrimSpace(header), "mcp_servers.")
			if name = strings.Trim(name, `"'`); ok && !strings.Contains(name, ".") {
				in = make(entry)
				servers[name] = in
			}
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if in == nil || !ok || strings.HasPrefix(line, "#") {
			continue
		}
		in[strings.TrimSpace(key)] = tomlValue(strings.TrimSpace(value))
	}
	return servers, nil
}

func tomlValue(text string) any {
	if quote := text[:min(1, len(text))]; quote == `"` || quote == "'" {
		value, _, _ := strings.Cut(text[1:], quote)
		return value
	}
	text, _, _ = strings.Cut(text, "#")
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64); err == nil {
		return n
	}
	switch text {
	case "true":
		return true
	case "false":
		return false
	}
	return text
}
