package agenttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// codexFlags are those of codex exec 0.171 that matter here.
var codexFlags = flags{
	"--json": 0, "--skip-git-repo-check": 0, "-c": 1, "--config": 1, "-m": 1, "--model": 1, "-s": 1, "--sandbox": 1,
	"-C": 1, "--cd": 1, "--add-dir": 1, "--ephemeral": 0, "-p": 1, "--profile": 1, "--ignore-user-config": 0, "--color": 1,
	"--dangerously-bypass-approvals-and-sandbox": 0, "--dangerously-bypass-hook-trust": 0,
}

// codexInherits are the variables that Codex gives an MCP server unasked.
var codexInherits = []string{"HOME", "LOGNAME", "PATH", "SHELL", "USER", "__CF_USER_TEXT_ENCODING", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ"}

func codexGiven(g *Given, args []string) error {
	if len(args) == 0 || args[0] != "exec" {
		return errors.New("without exec it wants a terminal")
	}
	given, rest, err := codexFlags.parse(args[1:])
	if err != nil {
		return err
	}
	switch {
	case !has(given, "--json"):
		return errors.New("its output has no events")
	case !has(given, "--skip-git-repo-check"):
		return errors.New("not inside a trusted directory and --skip-git-repo-check was not specified")
	case len(rest) > 1:
		return fmt.Errorf("unexpected argument %q", rest[1])
	}
	g.Model = one(given, "-m", "--model")
	g.Prompt = strings.Join(rest, "")
	if g.Prompt == "" || g.Prompt == "-" {
		if g.Prompt, err = piped(); err != nil {
			return err
		}
	}
	return g.codexServers(append(given["-c"], given["--config"]...))
}

// codexServers reads key=value, in which the value is TOML.
func (g *Given) codexServers(settings []string) error {
	var text strings.Builder
	for _, setting := range settings {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return fmt.Errorf("-c %s is not key=value", setting)
		}
		fmt.Fprintf(&text, "%s = %s\n", key, value)
	}
	var config struct {
		Servers map[string]struct {
			Command  string            `toml:"command"`
			Args     []string          `toml:"args"`
			Env      map[string]string `toml:"env"`
			EnvVars  []string          `toml:"env_vars"`
			Enabled  []string          `toml:"enabled_tools"`
			Approval string            `toml:"default_tools_approval_mode"`
			Startup  float64           `toml:"startup_timeout_sec"`
			Timeout  float64           `toml:"tool_timeout_sec"`
			Parallel bool              `toml:"supports_parallel_tool_calls"`
			Required bool              `toml:"required"`
		} `toml:"mcp_servers"`
		Hooks map[string][]struct {
			Matcher string `toml:"matcher"`
			Hooks   []struct {
				Type    string `toml:"type"`
				Command string `toml:"command"`
				Timeout int    `toml:"timeout"`
			} `toml:"hooks"`
		} `toml:"hooks"`
	}
	if err := toml.NewDecoder(bytes.NewReader([]byte(text.String()))).DisallowUnknownFields().Decode(&config); err != nil {
		var unknown *toml.StrictMissingError
		if errors.As(err, &unknown) {
			return fmt.Errorf("in its configuration:\n%s", unknown.String())
		}
		return fmt.Errorf("in its configuration: %w\n%s", err, text.String())
	}
	if err := hooked(text.String(), "hook codex", "hooks.PreToolUse"); err != nil {
		return err
	}
	s, ok := config.Servers["leasehold"]
	switch {
	case !ok:
		return errors.New("there is no server leasehold")
	case s.Approval != "approve":
		return errors.New("user cancelled MCP tool call: it would ask about each")
	case !s.Parallel:
		return errors.New("a call that waits would hold up the release that follows it")
	case !s.Required:
		return errors.New("it would go on without the server")
	}
	g.Command, g.Allowed, g.Timeout = append([]string{s.Command}, s.Args...), s.Enabled, s.Timeout
	g.Server = make(map[string]string)
	for _, name := range append(codexInherits, s.EnvVars...) {
		if value, set := g.Env[name]; set {
			g.Server[name] = value
		}
	}
	maps.Copy(g.Server, s.Env)
	return nil
}

func codexPrint(w io.Writer, g Given, _ float64) error {
	return print(w,
		object{"type": "thread.started", "thread_id": "fake"},
		object{"type": "turn.started"},
		object{"type": "item.completed", "item": object{"id": "item_0", "type": "reasoning", "text": "so be it"}},
		object{"type": "item.completed", "item": object{"id": "item_1", "type": "agent_message", "text": g.Answer}},
		object{"type": "turn.completed", "usage": object{"input_tokens": 1, "cached_input_tokens": 0, "output_tokens": 1}})
}
