package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/setup"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/registry"
)

// A clientConfig is a file in which a client lists its servers.
type clientConfig struct {
	client  string // as setup calls it, which knows where else the file may be
	file    string // relative to the working directory or the home directory
	home    bool   // only in the home directory
	servers func(text []byte) (map[string]entry, error)
	rules   clientRules
	passes  func(name string, e entry) bool // whether a variable is passed to the server; nil: all are
}

// An entry is a client's configuration of one server.
type entry map[string]any

// clientRules are the rules for the entries of a client.
type clientRules struct {
	field   string // the field with the time-out for calls
	good    string // the recommended value
	timeout func(entry) (limit time.Duration, set bool)
	unset   string // the effect if it is not set; "": nothing bad
	more    func(e entry, say sayFunc)
}

// A sayFunc records a finding about a server's entry.
type sayFunc func(l level, what, do string)

// callTime is the shortest acceptable time-out, because a call may wait for
// registry.MaxWait.
const callTime = registry.MaxWait + 5*time.Second

var clientConfigs = []clientConfig{
	{client: "claude", file: ".mcp.json", servers: mcpServers, rules: claudeRules},
	{client: "claude", file: ".claude.json", home: true, servers: claudeServers, rules: claudeRules},
	{client: "codex", file: ".codex/config.toml", servers: codexServers, rules: codexRules, passes: codexPasses},
	{client: "gemini", file: ".gemini/settings.json", servers: mcpServers, rules: geminiRules, passes: geminiPasses},
	{client: "copilot", file: ".copilot/mcp-config.json", home: true, servers: mcpServers, rules: copilotRules},
	{client: "copilot", file: ".github/mcp.json", servers: mcpServers, rules: copilotRules},
	{client: "qwen", file: ".qwen/settings.json", servers: mcpServers, rules: geminiRules},
	{client: "kimi", file: ".kimi-code/mcp.json", servers: mcpServers, rules: kimiRules},
	{client: "crush", file: "crush.json", servers: opencodeServers, rules: editorRules},
	{client: "crush", file: ".crush.json", servers: opencodeServers, rules: editorRules},
	{client: "opencode", file: "opencode.json", servers: opencodeServers, rules: opencodeRules},
	{client: "opencode", file: "opencode.jsonc", servers: opencodeServers, rules: opencodeRules},
	{client: "kilo", file: "kilo.json", servers: opencodeServers, rules: opencodeRules},
	{client: "kilo", file: "kilo.jsonc", servers: opencodeServers, rules: opencodeRules},
	{file: ".config/opencode/opencode.json", home: true, servers: opencodeServers, rules: opencodeRules},
	{file: ".config/opencode/opencode.jsonc", home: true, servers: opencodeServers, rules: opencodeRules},
	{client: "cursor", file: ".cursor/mcp.json", servers: mcpServers, rules: editorRules},
	{client: "vscode", file: ".vscode/mcp.json", servers: vscodeServers, rules: editorRules},
}

// editorRules are those of clients that give calls no time limit, or of whose limit nothing is known.
var editorRules = clientRules{
	timeout: func(entry) (time.Duration, bool) { return 0, false },
}

var claudeRules = clientRules{
	field: "timeout", good: "600000", timeout: in("timeout", time.Millisecond),
	more: func(e entry, say sayFunc) {
		if _, set := e["timeout"]; !set && e.http() {
			say(note, "has no timeout, and some builds cut calls over HTTP at 60 s", "set timeout to 600000")
		}
	},
}

var codexRules = clientRules{
	field: "tool_timeout_sec", good: "600", timeout: in("tool_timeout_sec", time.Second),
	unset: "older releases cut calls at 60 s",
	more: func(e entry, say sayFunc) {
		if e["supports_parallel_tool_calls"] != true {
			say(note, "makes one call at a time, so a call that waits delays the release that follows it", "set supports_parallel_tool_calls to true")
		}
	},
}

var geminiRules = clientRules{
	field: "timeout", good: "600000", timeout: in("timeout", time.Millisecond),
	unset: "the client's own default applies",
	more: func(e entry, say sayFunc) {
		if _, set := e["url"]; set {
			say(fault, "has url, which selects a transport that leasehold does not support", "rename it to httpUrl")
		}
	},
}

var copilotRules = clientRules{
	field: "timeout", good: "600000", timeout: in("timeout", time.Millisecond),
	unset: "the client's own default applies",
}

var kimiRules = clientRules{
	field: "toolTimeoutMs", good: "600000", timeout: in("toolTimeoutMs", time.Millisecond),
	unset: "the client's own default applies",
}

var opencodeRules = clientRules{
	field: "timeout", good: `{"startup": 30000, "catalog": 30000, "execution": 600000}, or directly below mcp to 600000`,
	unset: "older builds cut calls at 30 to 60 s",
	timeout: func(e entry) (time.Duration, bool) {
		if each, ok := e["timeout"].(map[string]any); ok {
			if limit, set := in("execution", time.Millisecond)(each); set {
				return limit, set
			}
			return in("request", time.Millisecond)(each) // the name in betas of version 2
		}
		return in("timeout", time.Millisecond)(e)
	},
}

// in returns a function that reads a field with a number of units.
func in(field string, unit time.Duration) func(entry) (time.Duration, bool) {
	return func(e entry) (time.Duration, bool) {
		n, ok := e[field].(float64)
		return time.Duration(n * float64(unit)), ok
	}
}

// examineClients looks at every configuration that names leasehold. at is where
// the daemons answer that a client may reach.
func examineClients(ctx context.Context, at []string) (found []finding) {
	home, _ := os.UserHomeDir()
	here, _ := os.Getwd()
	seen := make(map[string]bool)
	for _, c := range clientConfigs {
		for _, path := range c.paths(home, here) {
			if !seen[path] {
				seen[path] = true
				found = append(found, c.examine(ctx, at, path)...)
			}
		}
	}
	if len(found) == 0 {
		return []finding{{
			"clients", note, "no configuration of a client here or in the home directory names leasehold",
			"leasehold setup adds it to your agents",
		}}
	}
	return found
}

// examineSetup looks at what setup has written. After an upgrade its hooks and plugins may
// be those of an earlier version.
func examineSetup() (found []finding) {
	here, _ := os.Getwd()
	p, err := project.Of(here)
	if err != nil {
		return nil
	}
	state, err := place.State()
	if err != nil {
		return nil // that is told of the state
	}
	drifts, err := setup.Drifts(state, p.Top)
	if err != nil {
		return []finding{faultOf("setup", err)}
	}
	for _, d := range drifts {
		found = append(found, finding{
			"setup", note, "not as this version of leasehold setup writes them: " + strings.Join(d.Files, ", "),
			d.Command + " --check shows what differs, and without --check writes it",
		})
	}
	return found
}

// examineProject reads the settings of the project of this directory.
func examineProject() []finding {
	here, err := os.Getwd()
	if err != nil {
		return nil
	}
	p, err := project.Of(here)
	if err == nil {
		_, err = p.Settings()
	}
	if err != nil {
		return []finding{{"project", fault, oneLine.Replace(err.Error()), "correct that file: until then agents here join no run, and the guard checks no write"}}
	}
	return nil
}

// paths returns where the file may be: here, in the home directory, and where setup
// writes it, which variables such as CODEX_HOME say, and the project that here is in.
func (c clientConfig) paths(home, here string) (paths []string) {
	if !c.home && here != "" {
		paths = append(paths, filepath.Join(here, c.file))
	}
	if home != "" {
		paths = append(paths, filepath.Join(home, c.file))
	}
	p, err := project.Of(here)
	if c.client == "" || err != nil {
		return paths
	}
	for _, path := range setup.ServerFiles(c.client, p.Top) {
		if filepath.Base(path) == filepath.Base(c.file) {
			paths = append(paths, path)
		}
	}
	return paths
}

// inProject reports whether a file may have come with the repository that this directory
// is in. What is in the home directory has not, even if that is a repository.
func inProject(file string) bool {
	home, _ := os.UserHomeDir()
	here, _ := os.Getwd()
	p, _ := project.Of(here)
	return slices.ContainsFunc([]string{here, p.Top}, func(dir string) bool {
		return within(dir, file) && !(within(dir, home) && within(home, file))
	})
}

func within(dir, path string) bool {
	below, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(below)
}

func (c clientConfig) examine(ctx context.Context, at []string, file string) (found []finding) {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() { // a repository may have a link to a device
		return nil
	}
	text, err := os.ReadFile(file)
	text = bytes.TrimPrefix(text, []byte("\uFEFF")) // some editors begin with it
	if err != nil || !strings.Contains(string(text), "leasehold") {
		return nil
	}
	servers, err := c.servers(text)
	if err != nil {
		return []finding{{"clients", fault, fmt.Sprintf("%s names leasehold and cannot be read: %v", file, err), "correct the file: its client cannot read it either"}}
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		if e := servers[name]; e.isOurs(name) {
			start := func(say sayFunc) string { return c.start(ctx, at, inProject(file), e, say) }
			if len(at) == 0 {
				start = func(sayFunc) string { return notStarted(e) }
			}
			found = append(found, c.rules.examine(file+": "+name, e, start)...)
		}
	}
	return found
}

// notStarted returns a remark about a server that was not started because no
// daemon runs.
func notStarted(e entry) string {
	if e.command() == "" {
		return ""
	}
	return "was not started, since no daemon runs"
}

func (r clientRules) examine(server string, e entry, start func(sayFunc) string) (found []finding) {
	say := func(l level, what, do string) {
		found = append(found, finding{"clients", l, server + " " + what, do})
	}
	limit, set := r.timeout(e)
	switch do := fmt.Sprintf("set %s to %s", r.field, r.good); {
	case set && limit < callTime:
		say(fault, fmt.Sprintf("cuts calls at %v, and one may wait %v", limit, registry.MaxWait), do)
	case !set && r.unset != "":
		say(note, fmt.Sprintf("has no %s: %s", r.field, r.unset), do)
	}
	if r.more != nil {
		r.more(e, say)
	}
	if command := e.command(); command != "" {
		switch _, err := exec.LookPath(command); {
		case err != nil && filepath.IsAbs(command):
			say(fault, fmt.Sprintf("starts %s, which is not there or cannot be started", command), "run leasehold setup, or correct the path")
		case err != nil:
			say(fault, fmt.Sprintf("starts %s, which is not in the PATH", command), "put it there, or name it by its whole path")
		}
	}
	connects := start(say)
	switch {
	case len(found) > 0:
	case connects != "" && r.field == "":
		say(fine, connects, "")
	case connects != "":
		say(fine, "has a long enough tool time-out, and "+connects, "")
	case r.field == "":
		say(fine, "is there", "")
	default:
		say(fine, "has a long enough tool time-out", "")
	}
	return found
}

func (e entry) isOurs(name string) bool {
	text, err := json.Marshal(e)
	return strings.Contains(name, "leasehold") || err == nil && strings.Contains(string(text), "leasehold")
}

// isPlain reports whether a server is this program, or the one that its user calls by the
// name leasehold, connects to a daemon of this machine and gets no variables. Such a server
// can do nothing that its user does not want.
func (e entry) isPlain() bool {
	path, err := exec.LookPath(e.command())
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	own, _ := os.Executable()
	this, ownErr := os.Stat(own)
	args := e.arguments()
	return (e.command() == "leasehold" || err == nil && ownErr == nil && os.SameFile(there, this)) && args[0] == "mcp" &&
		e["env"] == nil && e["environment"] == nil &&
		!slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--server") }) // it would get the user's token
}

func (e entry) http() bool { return e["url"] != nil || e["httpUrl"] != nil }

// command returns the program that the client starts, or "".
func (e entry) command() string {
	if list, ok := e["command"].([]any); ok && len(list) > 0 {
		command, _ := list[0].(string)
		return command
	}
	command, _ := e["command"].(string)
	return command
}
