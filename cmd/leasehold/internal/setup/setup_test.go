package setup_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/setup"
	"github.com/leasehold/leasehold/dispatch/agent"
)

// A home is a user's, with nothing in it.
type home struct {
	t   *testing.T
	dir string
}

func newHome(t *testing.T) home {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := home{t, filepath.Join(dir, "home")}
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{h.dir, bin, h.path("work")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(bin, "leasehold"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "QWEN_HOME", "KIMI_CODE_HOME", "CRUSH_GLOBAL_CONFIG"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", h.dir)
	t.Setenv("PATH", bin)
	t.Setenv("XDG_STATE_HOME", filepath.Join(dir, "state"))
	t.Chdir(h.path("work"))
	return h
}

func (h home) path(name string) string { return filepath.Join(h.dir, filepath.FromSlash(name)) }

func (h home) write(name, text string) {
	h.t.Helper()
	if err := os.MkdirAll(filepath.Dir(h.path(name)), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path(name), []byte(text), 0o640); err != nil {
		h.t.Fatal(err)
	}
}

func (h home) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// all is everything in the home: modes, links and texts.
func (h home) all() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += "\n" + string(text)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " " + to
		}
		all[path] = what
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h home) same(before map[string]string, what string) {
	h.t.Helper()
	after := h.all()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if got, ok := after[name]; !ok {
			h.t.Errorf("%s: %s is gone", what, name)
		} else if got != before[name] {
			h.t.Errorf("%s: %s is not what it was:\n%q\nwas\n%q", what, name, got, before[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			h.t.Errorf("%s: %s is left:\n%s", what, name, after[name])
		}
	}
}

// run runs leasehold setup.
func (h home) run(args ...string) (out string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := setup.NewCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.Execute()
	return stdout.String() + stderr.String(), err
}

func (h home) ok(args ...string) string {
	h.t.Helper()
	out, err := h.run(args...)
	if err != nil {
		h.t.Fatalf("setup %v: %v\n%s", args, err, out)
	}
	return out
}

// A place is where a client has its servers.
type place struct{ client, file, servers string }

var places = []place{
	{"claude", ".claude.json", "mcpServers"},
	{"claude", ".claude/settings.json", "hooks"},
	{"codex", ".codex/config.toml", "mcp_servers"},
	{"codex", ".codex/hooks.json", "hooks"},
	{"gemini", ".gemini/settings.json", "mcpServers"},
	{"opencode", ".config/opencode/opencode.jsonc", "mcp"},
	{"kilo", ".config/kilo/kilo.jsonc", "mcp"},
	{"copilot", ".copilot/mcp-config.json", "mcpServers"},
	{"copilot", ".copilot/hooks/leasehold.json", "hooks"},
	{"qwen", ".qwen/settings.json", "mcpServers"},
	{"kimi", ".kimi-code/mcp.json", "mcpServers"},
	{"crush", ".config/crush/crush.json", "mcp"},
	{"cursor", ".cursor/mcp.json", "mcpServers"},
	{"vscode", ".config/Code/User/mcp.json", "servers"},
}

// texts are configurations that somebody has, by what is special about them.
// SERVERS stands for what the client calls them.
var texts = map[string]string{
	"empty":              "",
	"a line end":         "\n",
	"an empty object":    "{}",
	"with a line end":    "{}\n",
	"with a space":       "{ }",
	"on two lines":       "{\n}\n",
	"on two lines, CRLF": "{\r\n}\r\n",
	"no servers":         "{\n  \"theme\": \"dark\",\n  \"list\": [1, 2.5e3, null, true]\n}\n",
	"others":             "{\n  \"SERVERS\": {\n    \"files\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"files\"],\n      \"env\": {\"KEY\": \"sk-secret\"}\n    }\n  },\n  \"z\": 1\n}\n",
	"tabs":               "{\n\t\"a\": {},\n\t\"SERVERS\": {\n\t\t\"files\": {\n\t\t\t\"command\": \"npx\"\n\t\t}\n\t}\n}\n",
	"CRLF":               "{\r\n  \"a\": 1,\r\n  \"SERVERS\": {\r\n    \"files\": { \"command\": \"npx\" }\r\n  }\r\n}\r\n",
	"no line end":        "{\n    \"SERVERS\": {\n        \"files\": {\"command\": \"npx\"}\n    }\n}",
	"comments":           "// mine\n{\n  // about a\n  \"a\": 1, // behind a\n  /* of several\n     lines */\n  \"SERVERS\": { // behind the brace\n    // the first\n    \"files\": {\"command\": \"npx\"}, // the last\n  },\n}\n// the end\n",
	"a comment inside":   "{ /* nothing yet */ }\n",
	"one line":           `{"a":[],"SERVERS":{"files":{"command":"npx","args":["{}","//no comment"]}},"b":{}}`,
	"one line, spaced":   "{ \"SERVERS\": { \"files\": { \"command\": \"npx\" } } }\n",
	"no server yet":      "{\n  \"SERVERS\": {}\n}\n",
	"no server, spaced":  "{\n  \"SERVERS\": {\n  }\n}\n",
	"letters":            "{\n  \"名前\": \"Grüße \\u00e9 \\\"x\\\"\",\n  \"SERVERS\": {\"ü\": {\"command\": \"→\"}}\n}\n",
	"ours, poor":         "{\n  \"SERVERS\": {\n    \"leasehold\": {\n      \"command\": \"/bin/sh\",\n      \"args\": [\"mcp\", \"--name\", \"me\"],\n      \"timeout\": 5000 // too little\n    }\n  }\n}\n",
	"ours, at a URL":     "{\n  \"SERVERS\": {\n    \"leasehold\": {\"url\": \"http://127.0.0.1:7711/mcp\", \"timeout\": 900000}\n  }\n}\n",
	"ours, no members":   "{\"SERVERS\": {\"leasehold\": {}}}",
	"permissions":        "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls)\" // look\n    ],\n    \"deny\": []\n  }\n}\n",
	"deep":               "{\n        \"SERVERS\":\n        {\n                \"files\":\n                {\n                        \"command\": \"npx\"\n                }\n        }\n}\n",
}

var brokenTexts = map[string]string{
	"cut off":         "{\n  \"SERVERS\": {\n    \"files\": {\"command\": \"npx\"}\n",
	"no comma":        "{\n  \"a\": 1\n  \"b\": 2\n}\n",
	"no object":       "[1, 2]\n",
	"no JSON":         "servers = 1\n",
	"another end":     "{} }\n",
	"a wrong literal": "{\"a\": tru}\n",
	"a list":          "{\n  \"SERVERS\": []\n}\n",
	"nothing":         "{\n  \"SERVERS\": null\n}\n",
	"not an object":   "{\n  \"SERVERS\": {\"leasehold\": \"x\"}\n}\n",
}

var tomlTexts = map[string]string{
	"empty":             "",
	"a line end":        "\n",
	"a comment":         "# mine\n",
	"no line end":       "model = \"o3\"",
	"CRLF":              "model = \"o3\"\r\n\r\n[mcp_servers.files]\r\ncommand = \"npx\"\r\n",
	"CRLF, no line end": "a = 1\r\n[b]\r\nc = 2",
	"others":            "# mine\nmodel = \"o3\" # good\n\n[mcp_servers.files]\ncommand = \"npx\"\nargs = [\"-y\", # yes\n  \"files\",\n]\n\n[mcp_servers.files.env]\nKEY = \"sk-secret\"\n\n[profiles.x]\nmodel = \"y\"\n",
	"tabs":              "[mcp_servers]\n\t[mcp_servers.files]\n\tcommand = \"npx\"\n",
	"quoted keys":       "[\"mcp_servers\".'files']\ncommand = 'npx'\n[projects.\"/home/me/a b\"]\ntrust_level = \"trusted\"\n",
	"dotted keys":       "mcp_servers.files.command = \"npx\"\n",
	"a list of tables":  "[[hooks]]\na = 1\n[[hooks]]\na = 2\n",
	"long strings":      "a = \"\"\"\n[mcp_servers.leasehold]\ncommand = \"no\"\n\"\"\"\nb = '''\n# no comment'''\n",
	"dates":             "at = 2026-11-22T07:00:00Z\nday = 2026-11-22\nn = 1_000\nf = 1e3\nx = 0xff\ninf = inf\n",
	"blank lines":       "a = 1\n\n\n\n",
	"no blank line":     "[a]\nb = 1\n",
	"letters":           "\"名\" = \"Grüße → \\u00e9\"\n",
	"ours, poor":        "[mcp_servers.leasehold] # by hand\n# how\ncommand = \"/bin/sh\"\nargs = [\"mcp\", \"--name\", \"me\"]\nenv_vars = [\"MINE\"] # mine\ntool_timeout_sec = 5 # too little\n\n[other]\na = 1\n",
	"ours, many lines":  "[mcp_servers.leasehold]\ncommand = \"leasehold\"\nenv_vars = [\n  \"LEASEHOLD_TOKEN\", # secret\n]\n",
	"ours, CRLF":        "[mcp_servers.leasehold]\r\ncommand = \"leasehold\"\r\nenv_vars = []\r\n",
	"ours, at a URL":    "[mcp_servers.leasehold]\nurl = \"http://127.0.0.1:7711/mcp\"\nbearer_token_env_var = \"LEASEHOLD_TOKEN\"\n",
	"ours, no members":  "[mcp_servers.leasehold]",
}

var brokenTOML = map[string]string{
	"cut off":       "[mcp_servers.files\ncommand = 1\n",
	"no value":      "a =\n",
	"twice":         "a = 1\na = 2\n",
	"JSON":          "{\"a\": 1}\n",
	"a line":        "model = \"o3\n",
	"an inline one": "mcp_servers = {files = {command = \"npx\"}}\n",
	"not a table":   "mcp_servers.leasehold = 1\n",
	"inline":        "[mcp_servers]\nleasehold = {command = \"leasehold\"}\n",
}

// For every client and every configuration: setup writes what --check then finds,
// a second setup writes nothing, what was there is still there, and --uninstall
// leaves all of the home as it was, byte for byte.
func TestSetupIsTakenBackByteForByte(t *testing.T) {
	for _, p := range places {
		some := texts
		if strings.HasSuffix(p.file, ".toml") {
			some = tomlTexts
		}
		if len(some) < 20 {
			t.Errorf("%s: only %d configurations", p.client, len(some))
		}
		for _, name := range slices.Sorted(maps.Keys(some)) {
			t.Run(p.client+"/"+name, func(t *testing.T) {
				h := newHome(t)
				h.write(p.file, strings.ReplaceAll(some[name], "SERVERS", p.servers))
				if p.client == "claude" && p.servers != "hooks" {
					h.write(".claude/settings.json", strings.ReplaceAll(some[name], "SERVERS", "permissions2"))
				}
				before, was := h.all(), meaning(t, p.file, h.read(p.file))
				serves := p.client == "cursor" && name == "ours, poor" || name == "ours, at a URL" && (p.client == "cursor" || p.client == "vscode")
				if _, err := h.run(p.client, "--check"); (err == nil) != serves {
					t.Errorf("--check says %v", err)
				}
				h.same(before, "--check")
				h.ok(p.client, "--yes")
				h.ok(p.client, "--check")
				after, is := h.all(), meaning(t, p.file, h.read(p.file))
				contains(t, "", is, was)
				servers, _ := is[p.servers].(map[string]any)
				ours, _ := servers["leasehold"].(map[string]any)
				hooks := strings.Count(h.read(p.file), "leasehold hook "+p.client)
				if server := ours["command"] != nil || ours["url"] != nil; p.servers == "hooks" && hooks != len(agent.Hooks(p.client)) || p.servers != "hooks" && !server {
					t.Errorf("the server or its hooks are not there:\n%s", h.read(p.file))
				}
				h.ok(p.client, "--yes")
				h.same(after, "a second setup")
				h.ok(p.client, "--uninstall", "--yes")
				h.same(before, "--uninstall")
			})
		}
	}
}

// What a client could not read either is refused with the place and not touched,
// nor is any other file of that client.
func TestBrokenFilesAreRefused(t *testing.T) {
	for _, p := range places {
		some := brokenTexts
		if strings.HasSuffix(p.file, ".toml") {
			some = brokenTOML
		}
		for name, text := range some {
			t.Run(p.client+"/"+name, func(t *testing.T) {
				h := newHome(t)
				text := strings.ReplaceAll(text, "SERVERS", p.servers)
				if p.servers == "hooks" {
					text = strings.ReplaceAll(text, "leasehold", "PreToolUse")
				}
				h.write(p.file, text)
				before := h.all()
				for _, args := range [][]string{{p.client, "--yes"}, {p.client, "--check"}, {p.client, "--uninstall", "--yes"}} {
					out, err := h.run(args...)
					if args[1] == "--uninstall" {
						if err != nil {
							t.Errorf("%v: %v\n%s", args, err, out)
						}
						continue
					}
					if err == nil || !strings.Contains(out, "refused") || !strings.Contains(out, p.file) {
						t.Errorf("%v: %v\n%s", args, err, out)
					}
				}
				h.same(before, "setup")
			})
		}
	}
	h := newHome(t)
	h.write(".codex/config.toml", "a = 1\nb = = 2\n")
	h.write(".gemini/settings.json", "{\n  \"a\": 1,\n  \"b\": x\n}\n")
	out, _ := h.run("codex", "gemini", "--yes", "--json")
	for _, want := range []string{"config.toml:2:5: ", "settings.json:3:8: "} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %s:\n%s", want, out)
		}
	}
}

// A client that rewrites its file, or a person, does not keep setup from taking
// back what it wrote, and loses nothing by it.
func TestUninstallAfterOthersHaveWritten(t *testing.T) {
	for _, p := range places {
		if strings.HasSuffix(p.file, ".toml") {
			continue
		}
		for _, name := range []string{"empty", "others", "no server yet", "comments", "ours, poor", "no servers", "permissions"} {
			t.Run(p.client+"/"+name, func(t *testing.T) {
				h := newHome(t)
				h.write(p.file, strings.ReplaceAll(texts[name], "SERVERS", p.servers))
				was := meaning(t, p.file, h.read(p.file))
				h.ok(p.client, "--yes")
				rewritten := meaning(t, p.file, h.read(p.file))
				rewritten["added"] = map[string]any{"later": true}
				rewritten[p.servers].(map[string]any)["new"] = map[string]any{"command": "x"}
				text, err := json.MarshalIndent(rewritten, "", "   ")
				if err != nil {
					t.Fatal(err)
				}
				h.write(p.file, string(text))
				h.ok(p.client, "--check")
				h.ok(p.client, "--uninstall", "--yes")
				is := meaning(t, p.file, h.read(p.file))
				if servers, _ := was[p.servers].(map[string]any); servers == nil {
					was[p.servers] = map[string]any{}
				}
				was["added"] = map[string]any{"later": true}
				was[p.servers].(map[string]any)["new"] = map[string]any{"command": "x"}
				if a, b := fmt.Sprint(was), fmt.Sprint(is); a != b {
					t.Errorf("it is\n%s\nwant\n%s", b, a)
				}
			})
		}
	}
	// Codex does not start with a table of settings for a server that it cannot start.
	t.Run("codex, a table below", func(t *testing.T) {
		for _, mine := range []string{"", "# mine\nmodel = \"o3\"\n"} {
			h := newHome(t)
			h.write(".codex/config.toml", mine)
			h.ok("codex", "--yes")
			const others = "\n[mcp_servers.files]\ncommand = \"npx\"\n"
			h.write(".codex/config.toml", h.read(".codex/config.toml")+
				"\n[mcp_servers.leasehold.env]\nLEASEHOLD_RUN = \"shop\"\n"+others+"\n[mcp_servers.leasehold.tools.lease_acquire]\n# asked\napproval_mode = \"approve\"\n")
			h.ok("codex", "--uninstall", "--yes")
			if got := h.read(".codex/config.toml"); strings.TrimSpace(got) != strings.TrimSpace(mine+others) {
				t.Errorf("it is\n%q, want\n%q", got, mine+others)
			}
		}
	})
	t.Run("codex", func(t *testing.T) {
		h := newHome(t)
		h.write(".codex/config.toml", "# mine\nmodel = \"o3\"\n")
		h.ok("codex", "--yes")
		text := strings.Replace(h.read(".codex/config.toml"), "tool_timeout_sec = 600", "tool_timeout_sec = 900 # more", 1)
		h.write(".codex/config.toml", text+"\n[mcp_servers.files]\ncommand = \"npx\"\n")
		h.ok("codex", "--check")
		h.ok("codex", "--uninstall", "--yes")
		if got, want := h.read(".codex/config.toml"), "# mine\nmodel = \"o3\"\n\n[mcp_servers.files]\ncommand = \"npx\"\n"; got != want {
			t.Errorf("it is\n%q, want\n%q", got, want)
		}
	})
}

// Clients group hooks by what they match, and may put a hook of the user's into the group
// with Leasehold's. It stays.
func TestAHookOfTheUsersStaysBesideOurs(t *testing.T) {
	const mine = `{"type": "command", "command": "my-linter"}`
	for _, p := range []place{{"claude", ".claude/settings.json", "*"}, {"codex", ".codex/hooks.json", ""}, {"gemini", ".gemini/settings.json", ""}, {"qwen", ".qwen/settings.json", ""}} {
		t.Run(p.client, func(t *testing.T) {
			h := newHome(t)
			h.ok(p.client, "--yes")
			ours := regexp.MustCompile(`(?s)"hooks": \[\s+(\{.*?\})\s+\]`)
			h.write(p.file, ours.ReplaceAllString(h.read(p.file), `"hooks": [$1, `+mine+`]`))
			h.ok(p.client, "--check")
			n := strings.Count(h.read(p.file), mine)
			h.ok(p.client, "--uninstall", "--yes")
			if got := h.read(p.file); n == 0 || strings.Count(got, mine) != n || strings.Contains(got, "leasehold") {
				t.Errorf("after --uninstall, with %d hooks of the user's, it is\n%s", n, got)
			}
		})
	}

	// Written by hand, or by an earlier version.
	h := newHome(t)
	h.write(".claude/settings.json", `{"hooks": {"PreToolUse": [{"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "leasehold hook claude", "timeout": 5}, `+mine+`]}]}}`)
	before := h.all()
	h.ok("claude", "--yes")
	if got := h.read(".claude/settings.json"); !strings.Contains(got, mine) {
		t.Errorf("after setup, it is\n%s", got)
	}
	h.ok("claude", "--check")
	h.ok("claude", "--uninstall", "--yes")
	h.same(before, "--uninstall")
}

// What setup wrote and the user changed cannot always be found. Then it is named.
func TestUninstallNamesWhatItLeaves(t *testing.T) {
	h := newHome(t)
	h.ok("claude", "--yes")
	if err := os.RemoveAll(filepath.Join(os.Getenv("XDG_STATE_HOME"), "leasehold")); err != nil { // and what setup wrote is not known
		t.Fatal(err)
	}
	h.ok("claude", "--yes")
	before := h.all()
	if out := h.ok("claude", "--uninstall", "--yes"); !strings.Contains(out, "by hand is left") {
		t.Errorf("without its record, --uninstall says\n%s", out)
	}
	h.same(before, "--uninstall without the record")

	h = newHome(t)
	h.ok("claude", "--yes")
	h.write(".claude/settings.json", strings.Replace(h.read(".claude/settings.json"), `"leasehold hook`, `"/opt/leasehold hook`, 1))
	if out := h.ok("claude", "--uninstall", "--yes"); !strings.Contains(h.read(".claude/settings.json"), "leasehold hook") || !strings.Contains(out, "by hand") {
		t.Errorf("it leaves %s\nand says\n%s", h.read(".claude/settings.json"), out)
	}
}

// What is missing again, or was made worse, is found by --check and mended, and
// all of it is taken back in the end.
func TestDriftIsMended(t *testing.T) {
	for client, c := range map[string]struct{ file, text, memory, name, good, poor string }{
		"gemini": {".gemini/settings.json", "{\n  \"theme\": \"dark\"\n}\n", ".gemini/GEMINI.md", `"timeout": `, "600000", "1000"},
		"codex":  {".codex/config.toml", "model = \"x\"\n", ".codex/AGENTS.md", "tool_timeout_sec = ", "600", "5"},
	} {
		t.Run(client, func(t *testing.T) {
			h := newHome(t)
			h.write(c.file, c.text)
			h.write(c.memory, "# Mine\n")
			before := h.all()
			h.ok(client, "--yes")
			set := h.all()
			h.write(c.file, strings.Replace(h.read(c.file), c.name+c.good, c.name+c.poor, 1))
			h.write(c.memory, strings.Replace(h.read(c.memory), "## Leases", "## Other", 1))
			out, err := h.run(client, "--check")
			if err == nil || strings.Count(out, "change   ") != 2 || strings.Contains(out, "sub-agent") || !strings.Contains(out, "- "+c.poor) || !strings.Contains(out, "+ "+c.good) {
				t.Errorf("--check: %v\n%s", err, out)
			}
			h.ok(client, "--yes")
			h.same(set, "setup after a drift")
			h.ok(client, "--uninstall", "--yes")
			h.same(before, "--uninstall after a drift")
		})
	}
}

// An entry that starts a program of an absolute path, such as an earlier setup writes if
// leasehold is not in the PATH, is mended once the program is gone. Its arguments stay.
func TestAProgramThatIsGone(t *testing.T) {
	for _, c := range []struct{ client, file, was, is string }{
		{"claude", ".claude.json", `{"mcpServers": {"leasehold": {"command": "PROGRAM", "args": ["mcp", "--name", "me"]}}}`, `"command": "leasehold", "args": ["mcp", "--name", "me"]`},
		{"opencode", ".config/opencode/opencode.json", `{"mcp": {"leasehold": {"type": "local", "command": ["PROGRAM", "mcp", "--name", "me"]}}}`, `"command": ["leasehold", "mcp", "--name", "me"]`},
		{"codex", ".codex/config.toml", "[mcp_servers.leasehold]\ncommand = \"PROGRAM\"\nargs = [\"mcp\", \"--name\", \"me\"]\n", "command = \"leasehold\"\nargs = [\"mcp\", \"--name\", \"me\"]"},
	} {
		dangling := filepath.Join(t.TempDir(), "leasehold") // as a package manager leaves it
		if err := os.Symlink("nowhere", dangling); err != nil {
			t.Fatal(err)
		}
		for program, gone := range map[string]bool{"/bin/sh": false, "npx": false, "~/bin/leasehold": false, "/nowhere/leasehold": true, dangling: true} {
			h := newHome(t)
			was := strings.ReplaceAll(c.was, "PROGRAM", program)
			h.write(c.file, was)
			h.ok(c.client, "--yes")
			if got := h.read(c.file); strings.Contains(got, c.is) != gone || strings.Contains(got, program) == gone {
				t.Errorf("%s, %s: it is\n%s", c.client, program, got)
			}
			h.ok(c.client, "--check")
			h.ok(c.client, "--uninstall", "--yes")
			if got := h.read(c.file); got != was {
				t.Errorf("%s, %s: after --uninstall, it is\n%s", c.client, program, got)
			}
		}
	}
}

// AGENTS.md is several clients': the block is written once, and stays until the
// last of them is uninstalled.
func TestAFileOfSeveralClients(t *testing.T) {
	h := newHome(t)
	h.write("work/AGENTS.md", "# How we work\r\n\r\nWell.")
	before := h.all()
	h.ok("codex", "opencode", "kilo", "copilot", "qwen", "kimi", "crush", "--project", "--yes")
	text := h.read("work/AGENTS.md")
	if strings.Count(text, "leasehold:begin") != 1 || strings.Count(text, "\n") != strings.Count(text, "\r\n") {
		t.Errorf("it is %q", text)
	}
	h.ok("codex", "--project", "--uninstall", "--yes")
	h.ok("opencode", "kilo", "copilot", "qwen", "kimi", "crush", "--project", "--check")
	if got := h.read("work/AGENTS.md"); got != text {
		t.Errorf("the block that others need is gone: %q", got)
	}
	h.ok("--project", "--uninstall", "--yes")
	h.same(before, "--uninstall")
}

// The block goes into a text of any kind, is brought up to date where it is old, and
// is taken back; one whose end is missing is refused.
func TestTheBlockInAnyText(t *testing.T) {
	old := "<!-- leasehold:begin, of an earlier version -->\nOld.\n<!-- leasehold:end -->"
	for name, text := range map[string]string{
		"empty": "", "a line end": "\n", "blank lines": "\n\n\n", "a word": "x", "a line": "# Mine\n",
		"CRLF": "# Mine\r\n\r\nText\r\n", "CRLF, no line end": "# Mine\r\nText", "tabs": "\t- a\n\t\t- b\t\n",
		"old": old, "old, with a line end": old + "\n", "old between": "# Mine\n" + old + "\n\n# Also mine",
		"other comments": "<!-- other:begin -->\n<!-- other:end -->\n", "letters": "# Grüße → 日本\n", "no UTF-8": "caf\xe9\n",
		"code": "```\nleasehold:begin\n```\n", "spaces at the end": "x   \n   ",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.write(".claude/CLAUDE.md", text)
			before := h.all()
			h.ok("claude", "--yes")
			h.ok("claude", "--check")
			got := h.read(".claude/CLAUDE.md")
			if strings.Count(got, "<!-- leasehold:begin") != 1 || strings.Contains(got, "Old.") || strings.Contains(text, "\r\n") != strings.Contains(got, "Leases\r\n") {
				t.Errorf("it is %q", got)
			}
			h.ok("claude", "--yes")
			if again := h.read(".claude/CLAUDE.md"); again != got {
				t.Errorf("a second setup made it %q", again)
			}
			h.write(".claude/CLAUDE.md", "before\n"+got+"after\n")
			h.ok("claude", "--uninstall", "--yes")
			if got := h.read(".claude/CLAUDE.md"); got != "before\n"+text+"after\n" {
				t.Errorf("with more around it, it became %q", got)
			}
			h.write(".claude/CLAUDE.md", text)
			h.same(before, "--uninstall")
		})
	}
	h := newHome(t)
	h.write(".claude/CLAUDE.md", "# Mine\n\n<!-- leasehold:begin -->\nHow?\n")
	before := h.all()
	if out, err := h.run("claude", "--yes"); err == nil || !strings.Contains(out, "CLAUDE.md:3:1: the block of leasehold has no end") {
		t.Errorf("%v\n%s", err, out)
	}
	h.same(before, "setup")
}

// A link stays one, and what it leads to keeps its mode; what cannot be replaced
// is refused and not touched.
func TestLinksAndModes(t *testing.T) {
	h := newHome(t)
	h.write("dotfiles/gemini.json", "{}\n")
	if err := os.Chmod(h.path("dotfiles/gemini.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.path(".gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	link := h.path(".gemini/settings.json")
	if err := os.Symlink("../dotfiles/gemini.json", link); err != nil {
		t.Fatal(err)
	}
	before := h.all()
	h.ok("gemini", "--yes")
	if to, err := os.Readlink(link); err != nil || to != "../dotfiles/gemini.json" {
		t.Errorf("the link became %q, %v", to, err)
	}
	if info, err := os.Stat(link); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode became %v, %v", info.Mode(), err)
	}
	h.ok("gemini", "--uninstall", "--yes")
	h.same(before, "--uninstall")

	for _, one := range []struct {
		what  string
		spoil func() error
	}{
		{"read-only", func() error { return os.Chmod(h.path("dotfiles/gemini.json"), 0o400) }},
		{"leads nowhere", func() error { return os.Remove(h.path("dotfiles/gemini.json")) }},
		{"not a regular file", func() error { return errors.Join(os.Remove(link), os.Mkdir(link, 0o755)) }},
	} {
		if err := one.spoil(); err != nil {
			t.Fatal(err)
		}
		before := h.all()
		if out, err := h.run("gemini", "--yes"); err == nil || !strings.Contains(out, one.what) {
			t.Errorf("%s: %v\n%s", one.what, err, out)
		}
		h.same(before, one.what)
	}
}

// The home of many users is behind a link, and people move a directory and leave a link.
func TestDirectoriesBehindLinks(t *testing.T) {
	all := []string{"claude", "codex", "gemini", "opencode", "kilo", "copilot", "qwen", "kimi", "crush", "cursor", "vscode"}
	h := newHome(t)
	link := filepath.Join(filepath.Dir(h.dir), "link")
	if err := os.Symlink(h.dir, link); err != nil {
		t.Fatal(err)
	}
	before := h.all()
	t.Setenv("HOME", link)
	h.ok(append(all, "--yes")...)
	h.ok(append(all, "--yes")...)
	h.ok("--uninstall", "--yes")
	h.same(before, "--uninstall in a home behind a link")

	h = newHome(t)
	h.write(".claude/settings.json", "{}\n")
	h.write("dotfiles/readme", "")
	h.ok("claude", "--yes")
	if err := errors.Join(os.Rename(h.path(".claude"), h.path("dotfiles/claude")), os.Symlink("dotfiles/claude", h.path(".claude"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.path(".claude/CLAUDE.md")); err != nil {
		t.Fatal(err)
	}
	h.ok("claude", "--yes") // writes the file again
	h.ok("--uninstall", "--yes")
	if got := h.read("dotfiles/claude/settings.json"); got != "{}\n" {
		t.Errorf("--uninstall after a move left\n%s", got)
	}
	if _, err := os.Stat(h.path("dotfiles/claude/CLAUDE.md")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("--uninstall after a move left CLAUDE.md: %v", err)
	}
}

// A repository of others may have links to the user's own files, or to git's.
func TestAProjectsFilesAreInTheProject(t *testing.T) {
	for _, c := range [][2]string{
		{"CLAUDE.md", ".bashrc"},
		{"CLAUDE.md", "work/.git/config"},
		{".claude/settings.json", ".claude/settings.json"},
		{".mcp.json", "new.json"},
		{".claude", ".claude"},
		{".claude", "work/.git"},
	} {
		link, to := c[0], c[1]
		h := newHome(t)
		h.write(".bashrc", "true\n")
		h.write("work/.git/config", "[core]\n")
		h.write(".claude/settings.json", "{}\n")
		path := filepath.Join(h.path("work"), link)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(h.path(to), path)); err != nil {
			t.Fatal(err)
		}
		before := h.all()
		if out, err := h.run("claude", "--project", "--yes"); err == nil || !strings.Contains(out, "leads") {
			t.Errorf("%s: %v\n%s", link, err, out)
		}
		h.same(before, link)
	}

	h := newHome(t)
	if err := errors.Join(os.Symlink("AGENTS.md", filepath.Join(h.path("work"), "CLAUDE.md")), os.WriteFile(filepath.Join(h.path("work"), "AGENTS.md"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	h.ok("claude", "--project", "--yes")
}

// What a link leads to may have any name: it is read and taken back as what its client
// takes it for.
func TestLinksToFilesOfOtherNames(t *testing.T) {
	for name, text := range map[string]string{
		".claude.json": "{}\n", ".claude/CLAUDE.md": "# mine\n", ".codex/config.toml": "a = 1\n", ".codex/hooks.json": "{}\n", ".codex/AGENTS.md": "mine",
		".gemini/settings.json": "{}\n", ".config/opencode/opencode.json": "{}\n", ".config/kilo/kilo.json": "{}\n", ".copilot/mcp-config.json": "{}\n", ".qwen/settings.json": "{}\n", ".kimi-code/mcp.json": "{}\n", ".config/crush/crush.json": "{}\n", ".cursor/mcp.json": "{}\n",
	} {
		for _, others := range []bool{false, true} { // others write into it afterwards
			h := newHome(t)
			h.write("dotfiles/one", text)
			if err := errors.Join(os.MkdirAll(filepath.Dir(h.path(name)), 0o700), os.Symlink(h.path("dotfiles/one"), h.path(name))); err != nil {
				t.Fatal(err)
			}
			before := h.all()
			clients := []string{"claude", "codex", "gemini", "opencode", "kilo", "copilot", "qwen", "kimi", "crush", "cursor"}
			h.ok(append(clients, "--yes")...)
			if others {
				h.write("dotfiles/one", h.read("dotfiles/one")+"\n")
			}
			h.ok(append(clients, "--uninstall", "--yes")...)
			if others {
				h.write("dotfiles/one", strings.TrimSuffix(h.read("dotfiles/one"), "\n"))
			}
			h.same(before, name)
		}
	}
}

// Some editors begin a text with a byte order mark. It stays.
func TestAByteOrderMarkStays(t *testing.T) {
	for name, text := range map[string]string{".gemini/settings.json": "{\"a\": 1}\r\n", ".gemini/GEMINI.md": "# mine\r\n", ".codex/config.toml": "a = 1\r\n"} {
		h := newHome(t)
		h.write(name, "\uFEFF"+text)
		before := h.all()
		h.ok("gemini", "codex", "--yes")
		if after := h.read(name); !strings.HasPrefix(after, "\uFEFF") || strings.Count(after, "\uFEFF") != 1 || !strings.Contains(after, "leasehold") {
			t.Errorf("%s became %q", name, after)
		}
		h.ok("gemini", "codex", "--check")
		h.ok("gemini", "codex", "--uninstall", "--yes")
		h.same(before, name)
	}
}

// A file that setup makes for the user is the user's alone, since its client may
// write secrets into it later; one of a project is not.
func TestModesOfNewFiles(t *testing.T) {
	h := newHome(t)
	h.ok("claude", "gemini", "--yes")
	h.ok("gemini", "--project", "--yes")
	for name, want := range map[string]fs.FileMode{
		".claude.json": 0o600, ".gemini": 0o700, ".gemini/settings.json": 0o600,
		"work/.gemini": 0o755, "work/.gemini/settings.json": 0o644, "work/GEMINI.md": 0o644,
	} {
		if info, err := os.Stat(h.path(name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info.Mode(), err, want)
		}
	}
}

// Without a terminal nothing is written unasked, and what is shown has no line of
// others in it.
func TestItAsks(t *testing.T) {
	h := newHome(t)
	h.write(".cursor/mcp.json", "{\n  \"mcpServers\": {\n    \"x\": {\"env\": {\"KEY\": \"sk-secret\"}}\n  }\n}\n")
	before := h.all()
	for _, args := range [][]string{{}, {"--json"}, {"cursor"}} {
		out, err := h.run(args...)
		if err == nil || !strings.Contains(err.Error(), "nothing was written") || !strings.Contains(out, "leasehold") || strings.Contains(out, "sk-secret") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	h.same(before, "setup without --yes")
	if out := h.ok("--uninstall"); !strings.Contains(out, "setup has written nothing here") {
		t.Errorf("--uninstall of nothing says %s", out)
	}
	if _, err := h.run("emacs"); err == nil || !strings.Contains(err.Error(), "setup knows claude, codex") {
		t.Errorf("an unknown client: %v", err)
	}
	empty := newHome(t)
	if _, err := empty.run(); err == nil || !strings.Contains(err.Error(), "no client that setup knows") {
		t.Errorf("no client: %v", err)
	}
}

// Most of what setup writes for several clients is one text, which nobody wants to read for
// each of them.
func TestItShowsTheBlockForModelsOnce(t *testing.T) {
	h := newHome(t)
	for _, c := range []struct{ flag, sign string }{{"--yes", "+"}, {"--uninstall", "-"}} {
		out, _ := h.run("claude", "codex", "gemini", c.flag) // without --yes, --uninstall only shows what it would do
		if strings.Count(out, c.sign+" ## Leases\n") != 1 || strings.Count(out, c.sign+" the same ") != 2 || !strings.Contains(out, " lines as in "+h.path(".claude/CLAUDE.md")+"\n") {
			t.Errorf("%s shows\n%s", c.flag, out)
		}
	}
}

// What is removed from the middle of a line is shown from where it begins.
func TestItShowsWhatItRemovesFromALine(t *testing.T) {
	h := newHome(t)
	h.write(".cursor/mcp.json", `{"mcpServers": {"x": {"command": "x"}}, "theme": "dark"}`)
	h.ok("cursor", "--yes")
	h.write(".cursor/mcp.json", strings.Replace(h.read(".cursor/mcp.json"), "dark", "light", 1))
	if out, _ := h.run("cursor", "--uninstall"); !strings.Contains(out, `- "leasehold": {`) {
		t.Errorf("it shows\n%s", out)
	}
}

// A file that another program writes meanwhile is not overwritten.
func TestAFileThatChangesMeanwhile(t *testing.T) {
	h := newHome(t)
	h.write(".cursor/mcp.json", "{}\n")
	cmd := setup.NewCommand()
	cmd.SetArgs([]string{"cursor", "--yes"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	setup.BetweenReadAndWrite(t, func() { h.write(".cursor/mcp.json", "{\"new\": 1}\n") })
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "changed by another program") {
		t.Errorf("it says %v", err)
	}
	if got := h.read(".cursor/mcp.json"); got != "{\"new\": 1}\n" {
		t.Errorf("it was overwritten: %s", got)
	}
}

// meaning is what a client reads.
func meaning(t *testing.T, file, text string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if strings.HasSuffix(file, ".toml") {
		if err := toml.Unmarshal([]byte(text), &m); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		return m
	}
	if strings.TrimSpace(text) == "" {
		return m
	}
	plain, err := hujson.Standardize([]byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := json.Unmarshal(plain, &m); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return m
}

// contains reports what is not in a configuration any more, but for what of ours
// was not enough.
func contains(t *testing.T, path string, is, was map[string]any) {
	t.Helper()
	for name, value := range was {
		below, isObject := value.(map[string]any)
		have, _ := is[name].(map[string]any)
		switch {
		case isObject && have != nil:
			contains(t, path+"/"+name, have, below)
		case strings.HasSuffix(path, "/leasehold"):
		case path == "/permissions" && strings.HasSuffix(fmt.Sprint(is[name]), strings.TrimPrefix(fmt.Sprint(value), "[")): // more is before what was there
		case fmt.Sprint(is[name]) != fmt.Sprint(value):
			t.Errorf("%s/%s is %v, and was %v", path, name, is[name], value)
		}
	}
}
