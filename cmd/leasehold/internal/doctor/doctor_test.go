package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/setup"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
)

// onPath puts a command of that name into the PATH.
func onPath(t *testing.T, name string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

// configOf is the place of a client's configuration among those looked at.
func configOf(t *testing.T, file string) clientConfig {
	t.Helper()
	for _, c := range clientConfigs {
		if c.file == file {
			return c
		}
	}
	t.Fatalf("%s is not looked at", file)
	return clientConfig{}
}

func TestConfigurationsOfTheBookAreWell(t *testing.T) {
	onPath(t, "leasehold")
	for file, of := range map[string]string{
		"claude-code.json": ".mcp.json", "claude-code-http.json": ".mcp.json",
		"codex.toml": ".codex/config.toml", "codex-http.toml": ".codex/config.toml",
		"gemini.json": ".gemini/settings.json", "gemini-http.json": ".gemini/settings.json",
		"opencode.json": "opencode.jsonc", "opencode-http.json": "opencode.jsonc", "opencode-v1.json": "opencode.json",
		"copilot.json": ".copilot/mcp-config.json", "qwen.json": ".qwen/settings.json", "kimi.json": ".kimi-code/mcp.json", "crush.json": "crush.json",
		"cursor.json": ".cursor/mcp.json", "vscode.json": ".vscode/mcp.json",
	} {
		found := configOf(t, of).examine(t.Context(), nil, filepath.Join("..", "..", "..", "..", "book", "clients", file))
		if len(found) != 1 || found[0].Level != fine {
			t.Errorf("%s: %+v", file, found)
		}
	}
}

// Whatever setup writes is looked at, wherever the user's variables put it, and from any
// directory of the project.
func TestWhatSetupWritesIsFound(t *testing.T) {
	onPath(t, "leasehold")
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	top := filepath.Join(home, "work", "shop")
	below := filepath.Join(top, "src", "deep")
	for _, dir := range []string{below, filepath.Join(top, ".git")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(top, ".git", "HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_STATE_HOME", filepath.Join(home, "state"))
	t.Chdir(below)
	for _, moved := range []string{"", filepath.Join(home, "elsewhere")} {
		for _, name := range []string{"CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "QWEN_HOME", "KIMI_CODE_HOME", "CRUSH_GLOBAL_CONFIG", "XDG_CONFIG_HOME"} {
			t.Setenv(name, moved)
		}
		for _, client := range []string{"claude", "codex", "gemini", "opencode", "kilo", "copilot", "qwen", "kimi", "crush", "cursor", "vscode"} {
			for _, scope := range []string{"--user", "--project"} {
				cmd := setup.NewCommand()
				cmd.SetArgs([]string{client, scope, "--yes"})
				cmd.SetOut(io.Discard)
				if err := cmd.ExecuteContext(t.Context()); err != nil {
					t.Fatalf("setup %s %s: %v", client, scope, err)
				}
			}
			files := setup.ServerFiles(client, top)
			if len(files) != 2 {
				t.Errorf("setup writes the servers of %s into %v", client, files)
			}
			found := examineClients(t.Context(), nil)
			for _, file := range files {
				n := 0
				for _, f := range found {
					if f.Level == fine && strings.HasPrefix(f.What, file+": leasehold ") {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s of %s is found %d times in %+v", file, client, n, found)
				}
			}
		}
	}
}

func TestConfigurationsThatHurtAreFound(t *testing.T) {
	onPath(t, "leasehold")
	for _, c := range []struct {
		file, text string
		want       []string // level and the words that must be there
	}{
		{".mcp.json", `{"mcpServers": {"leasehold": {"command": "leasehold", "args": ["mcp"], "timeout": 30000}, "other": {"command": "x"}}}`, []string{"fault cuts calls at 30s"}},
		{".mcp.json", `{"mcpServers": {"locks": {"command": "/nowhere/leasehold", "args": ["mcp"]}}}`, []string{"fault starts /nowhere/leasehold, which is not there"}},
		{".mcp.json", `{"mcpServers": {"leasehold": {"command": "leesehold", "args": ["mcp"]}}}`, []string{"fault starts leesehold, which is not in the PATH"}},
		{".mcp.json", `{"mcpServers": {"leasehold": {"type": "http", "url": "http://127.0.0.1:7711/mcp"}}}`, []string{"note has no timeout"}},
		{".mcp.json", `{"mcpServers": {"leasehold": {`, []string{"fault cannot be read"}},
		{".mcp.json", `{"mcpServers": {"other": {"command": "x"}}}`, nil},
		{".claude.json", `{"mcpServers": {"leasehold": {"command": "leasehold", "timeout": 1000}}, "projects": {"HERE": {"mcpServers": {"leasehold2": {"command": "leasehold"}}}, "/elsewhere": {"mcpServers": {"leasehold3": {"timeout": 1}}}}}`, []string{"fault cuts calls at 1s", "ok "}},
		{".codex/config.toml", "[mcp_servers.leasehold]\ncommand = \"leasehold\" # it\ntool_timeout_sec = 1_0.5 # short\n[mcp_servers.leasehold.env]\ntool_timeout_sec = 900\n", []string{"fault cuts calls at 10.5s", "note makes one call at a time"}},
		{".codex/config.toml", "[mcp_servers.leasehold]\ncommand = 'leasehold'\nsupports_parallel_tool_calls = true\n", []string{"note has no tool_timeout_sec"}},
		{".gemini/settings.json", `{"mcpServers": {"leasehold": {"url": "http://127.0.0.1:7711/mcp", "timeout": 600000}}}`, []string{"fault has url"}},
		{"opencode.jsonc", "{ // here\n \"mcp\": {\"servers\": {\"leasehold\": {\"command\": [\"leasehold\", \"mcp\"], /* ms */ \"timeout\": {\"request\": 40000,},},},},}", []string{"fault cuts calls at 40s"}},
		{"opencode.json", `{"mcp": {"leasehold": {"command": ["leasehold", "mcp"], "environment": {"x": "// no comment, }"}}}}`, []string{"note has no timeout"}},
	} {
		file := filepath.Join(t.TempDir(), filepath.Base(c.file))
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(c.text, "HERE", here)), 0o600); err != nil {
			t.Fatal(err)
		}
		found := configOf(t, c.file).examine(t.Context(), nil, file)
		if len(found) != len(c.want) {
			t.Errorf("%s %s: %+v, want %q", c.file, c.text, found, c.want)
			continue
		}
		for i, want := range c.want {
			level, words, _ := strings.Cut(want, " ")
			if f := found[i]; string(f.Level) != level || !strings.Contains(f.What, words) || (f.Level != fine) != (f.Do != "") {
				t.Errorf("%s %s: %+v, want %q", c.file, c.text, f, want)
			}
		}
	}
}

// A state of a run, its root and a worker, and some tasks.
func newState(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	inState(t, dir, func(eng *pebble.Engine) error {
		state, err := dispatch.Open(t.Context(), eng, dispatch.Options{})
		if err != nil {
			return err
		}
		_, token, err := state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "lead", Role: dispatch.Root})
		if err != nil {
			return err
		}
		if _, _, err := state.AddActor(t.Context(), dispatch.NewActor{Run: "r", Name: "W1", Role: dispatch.Worker}); err != nil {
			return err
		}
		se, err := state.Connect(t.Context(), dispatch.Credentials{Token: token}, process.Peer{})
		if err != nil {
			return err
		}
		tasks, err := se.Tasks()
		for i := range 3 {
			if err == nil {
				_, err = tasks.Enqueue(t.Context(), queue.NewTask{Queue: "q", Payload: json.RawMessage(fmt.Sprint(i))})
			}
		}
		return err
	})
	return dir
}

func inState(t *testing.T, dir string, do func(*pebble.Engine) error) {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: filepath.Join(dir, "db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(eng), eng.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestASoundStateIsSoundHoweverOftenItIsLookedAt(t *testing.T) {
	dir := newState(t)
	for range 3 {
		found, err := examineState(t.Context(), dir, func(int) {})
		if err != nil || len(found) != 1 || found[0].Level != fine || !strings.HasSuffix(found[0].What, "1 run, 2 actors, 0 leases, 3 tasks") {
			t.Fatalf("%v %+v", err, found)
		}
	}
}

// Whatever is taken from a state or spoilt in it is found, and its row is
// named or what it belongs to.
func TestDamageIsFound(t *testing.T) {
	for _, c := range []struct{ prefix, value, want string }{
		{"~ready/", "", "is ready and has no row"},
		{"~payload/", "", "no such row"},
		{"~payload/", "spoilt", "corrupt"},
		{"~ready/", "spoilt", "corrupt"},
		{"queue/", "", "and no account"},
		{"queue/", "spoilt", "corrupt"},
		{"member/", "", "W1 of run r is not in its layer"},
		{"layer/", "spoilt", "corrupt"},
		{"run/", "spoilt", "corrupt"},
	} {
		t.Run(strings.Trim(c.prefix, "~/")+" "+c.value, func(t *testing.T) {
			dir := newState(t)
			damaged := false
			inState(t, dir, func(eng *pebble.Engine) error {
				return eng.Update(context.Background(), func(tx engine.Tx) error {
					for row := range tx.Scan(c.prefix) {
						if damaged = true; c.value == "" {
							tx.Delete(row.Key)
						} else {
							row.Value = c.value
							tx.Put(row)
						}
						break
					}
					return nil
				})
			})
			if !damaged {
				t.Fatalf("no row %q", c.prefix)
			}
			found, err := examineState(t.Context(), dir, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprint(found)
			if found[0].Level != fault || found[0].Do == "" || !strings.Contains(text, c.want) {
				t.Errorf("found %+v, want %q", found, c.want)
			}
		})
	}
}
