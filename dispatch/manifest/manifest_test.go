package manifest_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/work"
)

// clients puts programs with the names of all clients into the PATH.
func clients(t *testing.T) {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"claude", "codex", "gemini", "opencode"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// A short manifest gets defaults for everything else.
func TestDefaults(t *testing.T) {
	clients(t)
	dir := t.TempDir()
	m, err := manifest.Parse(filepath.Join(dir, "nightly.toml"), []byte("[root]\nagent = \"claude\"\nprompt = \"do it\""), dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := (manifest.Run{
		Name: "nightly", Limits: work.Limits{MaxDepth: 4, MaxWorkersPerLayer: 32, MaxActors: 200}, DrainGraceSecs: 10,
		Store: work.Store{MaxValueBytes: 1 << 20, MaxBytes: 64 << 20, MaxEntries: 10_000},
	}); m.Run != want {
		t.Errorf("run %+v", m.Run)
	}
	if m.Root.Name != "lead" || m.Root.Directory != dir || m.Worker.Agent != "claude" || m.Sublead.Agent != "claude" {
		t.Errorf("root %+v, sublead %+v, worker %+v", m.Root, m.Sublead, m.Worker)
	}
	if len(m.Agents) != 1 || m.Agents["claude"].Extends != agent.Claude || !slices.Equal(m.Agents["claude"].Command, []string{"claude"}) {
		t.Errorf("agents %+v", m.Agents)
	}
	if m.Notes() != "" {
		t.Errorf("notes %q", m.Notes())
	}
}

// All keys of a complete manifest are used.
func TestEveryKey(t *testing.T) {
	clients(t)
	dir := t.TempDir()
	if out, err := exec.Command("git", "init", "-q", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := exec.Command("git", "-C", dir, "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "first")
	if out, err := first.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, text := range map[string]string{
		"prompts/root.md": "Lead them.\n", "bin/agent.sh": "#!/bin/sh\n",
		"m.toml": `
[run]
name = "release"
budget_usd = 5
max_depth = 2
max_workers_per_layer = 3
max_actors = 10
timeout_secs = 90.5
drain_grace_secs = 0
[run.store]
max_value_bytes = 10
max_bytes = 100
max_entries = 1
[agents.claude]
args = ["--permission-mode", "acceptEdits"]
model = "sonnet"
[agents.reviewer]
extends = "codex"
[agents.mine]
command = ["bin/agent.sh", "{prompt}"]
env = { LEVEL = "3" }
result = "/answer"
cost = "/usd"
[root]
agent = "claude"
name = "boss"
prompt_file = "prompts/root.md"
model = "opus"
directory = "prompts"
timeout_secs = 1
env = { A = "b" }
[sublead]
agent = "reviewer"
model = "gpt"
budget_usd = 2.5
max_workers = 4
timeout_secs = 0.5
read_down = true
[worker]
agent = "gemini"
model = "flash"
budget_usd = 0.1
timeout_secs = 3
worktree = true
[[leases]]
scope = "run"
key = "port 3000"
purpose = "the development server"
[[leases]]
scope = "layer"
key = "docs/output.json"
purpose = "whoever writes it"
`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m, err := manifest.Load(filepath.Join(dir, "m.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if want := (manifest.Run{
		Name: "release", Limits: work.Limits{BudgetUSD: 5, MaxDepth: 2, MaxWorkersPerLayer: 3, MaxActors: 10}, TimeoutSecs: 90.5, DrainGraceSecs: 0,
		Store: work.Store{MaxValueBytes: 10, MaxBytes: 100, MaxEntries: 1},
	}); m.Run != want {
		t.Errorf("run %+v", m.Run)
	}
	if r := m.Root; r.Prompt != "Lead them.\n" || r.Directory != filepath.Join(dir, "prompts") || r.Name != "boss" || r.Model != "opus" || r.TimeoutSecs != 1 || r.Env["A"] != "b" {
		t.Errorf("root %+v", r)
	}
	if want := (work.Sublead{Agent: "reviewer", Model: "gpt", BudgetUSD: 2.5, MaxWorkers: 4, TimeoutSecs: 0.5, ReadDown: true}); m.Sublead != want {
		t.Errorf("sublead %+v", m.Sublead)
	}
	if want := (work.Worker{Agent: "gemini", Model: "flash", BudgetUSD: 0.1, TimeoutSecs: 3, Worktree: true}); m.Worker != want {
		t.Errorf("worker %+v", m.Worker)
	}
	if p := m.Agents["claude"]; p.Extends != agent.Claude || !slices.Equal(p.Command, []string{"claude"}) || p.Model != "sonnet" || len(p.Args) != 2 {
		t.Errorf("claude %+v", p)
	}
	if p := m.Agents["reviewer"]; p.Extends != agent.Codex || !slices.Equal(p.Command, []string{"codex", "exec"}) {
		t.Errorf("reviewer %+v", p)
	}
	if p := m.Agents["mine"]; p.Extends != agent.Command || p.Command[0] != filepath.Join(dir, "bin", "agent.sh") || p.Prompt != "" || p.Env["LEVEL"] != "3" {
		t.Errorf("mine %+v", p)
	}
	if p := m.Agents["gemini"]; p.Extends != agent.Gemini || len(m.Agents) != 4 {
		t.Errorf("gemini %+v of %d", p, len(m.Agents))
	}
	const notes = "Leases that are known in advance; take one before you touch what it guards:\n" +
		"- run_lease_acquire with key \"port 3000\": the development server\n" +
		"- lease_acquire with name \"docs/output.json\": whoever writes it\n"
	if m.Notes() != notes {
		t.Errorf("notes %q", m.Notes())
	}
}

// A program whose path depends on the launch is looked for only then.
func TestAProgramMayHaveAPlaceholder(t *testing.T) {
	m, err := manifest.Parse("m.toml", []byte("[agents.mine]\ncommand = [\"{directory}/agent.sh\"]\n[root]\nagent = \"mine\"\nprompt = \"x\""), t.TempDir())
	if err != nil || m.Agents["mine"].Command[0] != "{directory}/agent.sh" {
		t.Errorf("%v %+v", err, m)
	}
}

// The template is a valid manifest, also with all of its commented settings
// enabled, and it mentions every key.
func TestTemplates(t *testing.T) {
	clients(t)
	if _, err := manifest.TemplateFor("aider", "x.toml"); err == nil {
		t.Error("there is a template for aider")
	}
	for _, profile := range agent.BuiltIns() {
		text, err := manifest.TemplateFor(profile, "dir/try.toml")
		if err != nil {
			t.Fatal(err)
		}
		m, err := manifest.Parse("try.toml", text, t.TempDir())
		if err != nil {
			t.Errorf("%s: %v\n%s", profile, err, text)
			continue
		}
		if m.Run.Name != "try" || m.Agents[m.Root.Agent].Extends != profile {
			t.Errorf("%s: run %s of agent %+v", profile, m.Run.Name, m.Agents[m.Root.Agent])
		}
		said := regexp.MustCompile(`(?m)^# (\[|\w+ = )`).ReplaceAllString(string(text), "$1")
		dir := t.TempDir()
		said = regexp.MustCompile(`(?m)^(prompt_file|label).*$`).ReplaceAllString(said, "") // instead of prompt, and of machine
		if _, err := manifest.Parse("try.toml", []byte(said), dir); err != nil {
			t.Errorf("%s, with everything said: %v\n%s", profile, err, said)
		}
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(manifest.Reference(), -1) {
			if key := m[1]; !strings.Contains(string(text), key+" = ") && !slices.Contains([]string{"extends", "result", "cost", "args", "model", "env", "command"}, key) {
				t.Errorf("%s: the template does not mention %s", profile, key)
			}
		}
	}
}

func TestLoadNamesAFileThatIsNotThere(t *testing.T) {
	_, err := manifest.Load(filepath.Join(t.TempDir(), "none.toml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Some editors begin a text with a byte order mark. It is no part of the manifest, nor of
// a prompt.
func TestAByteOrderMarkIsNoText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"root.md": "\uFEFFLead them.\n",
		"m.toml":  "\uFEFF[agents.a]\ncommand = [\"true\"]\n[root]\nagent = \"a\"\nprompt_file = \"root.md\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := manifest.Load(filepath.Join(dir, "m.toml"))
	if err != nil || m.Root.Prompt != "Lead them.\n" {
		t.Fatalf("%+v, %v", m, err)
	}
}

// A file without an end is refused, and not read into memory.
func TestAFileWithoutAnEndIsRefused(t *testing.T) {
	if _, err := manifest.Load("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero has more than 4 MiB") {
		t.Errorf("the manifest: %v", err)
	}
	text := "[agents.a]\ncommand = [\"true\"]\n[root]\nagent = \"a\"\nprompt_file = \"/dev/zero\"\n"
	if _, err := manifest.Parse("m.toml", []byte(text), t.TempDir()); err == nil || !strings.Contains(err.Error(), "root.prompt_file has more than 262144 bytes") {
		t.Errorf("the prompt: %v", err)
	}
}
