package doctor

import (
	"encoding/json"
	"maps"
	"os"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

// mcpServers parses {"mcpServers": {name: entry}}.
func mcpServers(text []byte) (map[string]entry, error) {
	var config struct {
		Servers map[string]entry `json:"mcpServers"`
	}
	err := unmarshal(text, &config)
	return config.Servers, err
}

// vscodeServers parses {"servers": {name: entry}}.
func vscodeServers(text []byte) (map[string]entry, error) {
	var config struct{ Servers map[string]entry }
	err := unmarshal(text, &config)
	return config.Servers, err
}

// unmarshal parses JSON with comments and trailing commas.
func unmarshal(text []byte, v any) error {
	plain, err := hujson.Standardize(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(plain, v)
}

// claudeServers parses the file of claude mcp add, which has servers for all
// projects and for this one.
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
	maps.Copy(servers, config.Servers)
	here, _ := os.Getwd()
	maps.Copy(servers, config.Projects[here].Servers)
	return servers, nil
}

// opencodeServers parses {"mcp": {"servers": {name: entry}}} and, for version
// 1, {"mcp": {name: entry}}.
func opencodeServers(text []byte) (map[string]entry, error) {
	var config struct{ MCP map[string]json.RawMessage }
	if err := unmarshal(text, &config); err != nil {
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
		if json.Unmarshal(raw, &e) == nil { // otherwise it is not a server
			servers[name] = e
		}
	}
	return servers, nil
}

// codexServers parses the tables [mcp_servers.NAME].
func codexServers(text []byte) (map[string]entry, error) {
	var config struct {
		Servers map[string]entry `toml:"mcp_servers"`
	}
	if err := toml.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	for _, e := range config.Servers {
		for name, value := range e {
			if n, ok := value.(int64); ok {
				e[name] = float64(n) // as a JSON parser returns it
			}
		}
	}
	return config.Servers, nil
}
