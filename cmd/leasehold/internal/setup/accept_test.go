package setup_test

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var realClients = flag.String("clients", "", "the directory with the programs of the real clients, as just clients installs them")

// Each real client reads what setup wrote, or what its plugin or extension brings,
// starts the server as configured, in a desktop's environment, and says that it is
// connected.
func TestRealClientsAcceptTheConfiguration(t *testing.T) {
	if *realClients == "" {
		t.Skip("just clients installs the clients and runs this")
	}
	clients, err := filepath.Abs(*realClients)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "leasehold"), "github.com/leasehold/leasehold/cmd/leasehold")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		list []string
		want string
		env  string

		install, uninstall [][]string // instead of setup
	}{
		{name: "claude", list: []string{"mcp", "list"}, want: `leasehold: .*leasehold mcp - .*Connected`},
		{name: "codex", list: []string{"mcp", "get", "leasehold"}, want: `(?s)enabled: true.*command: leasehold.*args: mcp.*LEASEHOLD_TOKEN`},
		{name: "gemini", list: []string{"mcp", "list"}, want: `leasehold: leasehold mcp \(stdio\).*Connected`, env: "GEMINI_CLI_TRUST_WORKSPACE=true"},
		{
			name: "claude", list: []string{"mcp", "list"}, want: `plugin:leasehold:leasehold: leasehold mcp - .*Connected`,
			install:   [][]string{{"plugin", "validate", top}, {"plugin", "marketplace", "add", top}, {"plugin", "install", "leasehold@leasehold"}},
			uninstall: [][]string{{"plugin", "uninstall", "leasehold@leasehold"}},
		},
		{
			name: "gemini", list: []string{"mcp", "list"}, want: `leasehold \(from leasehold\): leasehold mcp \(stdio\).*Connected`, env: "GEMINI_CLI_TRUST_WORKSPACE=true",
			install:   [][]string{{"extensions", "validate", top + "/plugins/gemini-cli"}, {"extensions", "install", top + "/plugins/gemini-cli", "--consent"}},
			uninstall: [][]string{{"extensions", "uninstall", "leasehold"}},
		},
		{name: "opencode", list: []string{"mcp", "list"}, want: `leasehold.*connected`},
		{name: "copilot", list: []string{"mcp", "get", "leasehold"}, want: `(?s)leasehold.*Command: +leasehold`},
		{name: "qwen", list: []string{"mcp", "list"}, want: `leasehold: leasehold mcp \(stdio\).*Connected`},
	} {
		t.Run(c.name, func(t *testing.T) {
			program, err := exec.LookPath(filepath.Join(clients, c.name))
			if err != nil {
				t.Skip(err)
			}
			home, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(home)
			env := []string{
				"HOME=" + home, "XDG_RUNTIME_DIR=" + home, "TMPDIR=" + home, "TERM=dumb", "NO_COLOR=1", c.env,
				"PATH=" + bin + ":" + clients + ":" + os.Getenv("PATH"),
			}
			run := func(name string, args ...string) string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cmd := exec.CommandContext(ctx, name, args...)
				cmd.Env, cmd.Dir = env, home
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Run(); err != nil {
					t.Errorf("%s %v: %v\n%s", filepath.Base(name), args, err, &out)
				}
				return out.String()
			}
			leasehold := filepath.Join(bin, "leasehold")
			for _, args := range c.install {
				run(program, args...)
			}
			if c.install == nil {
				run(leasehold, "setup", c.name, "--yes")
			}
			out := colours.ReplaceAllString(run(program, c.list...), "")
			if !regexp.MustCompile(c.want).MatchString(out) {
				t.Errorf("it says\n%s", out)
			}
			if c.install == nil {
				run(leasehold, "setup", c.name, "--check") // it has rewritten nothing of it
			}
			if _, err := os.Stat(filepath.Join(home, "leasehold", "leasehold.sock")); err == nil {
				run(leasehold, "stop")
			}
			for _, args := range c.uninstall {
				run(program, args...)
			}
			run(leasehold, "setup", c.name, "--uninstall", "--yes")
			for _, left := range []string{".claude.json", ".codex/config.toml", ".gemini/settings.json", ".config/opencode/opencode.json", ".copilot/mcp-config.json", ".qwen/settings.json"} {
				if text, err := os.ReadFile(filepath.Join(home, left)); err == nil && strings.Contains(string(text), `"leasehold"`) {
					t.Errorf("%s still has\n%s", left, text)
				}
			}
		})
	}
}

var colours = regexp.MustCompile(`\x1b\[[0-9;]*m`)
