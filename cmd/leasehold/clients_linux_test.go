package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	realClients = flag.String("clients", "", "the directory with the programs of the real clients, as just clients installs them")
	clientEdits = flag.Int("clients.edits", 40, "how many edits the agents of TestRealClients/lose no update make")
)

// clientNames are those that are benched, and that leasehold dispatch starts.
var clientNames = []string{"claude", "codex", "gemini", "opencode"}

// guarded are all whose hooks guard what they write. Some are left out of the gate,
// which installs enough.
func (b *bench) guarded() []string {
	all := slices.Clone(clientNames)
	for _, client := range []string{"copilot", "qwen", "kimi", "crush"} {
		if _, err := os.Stat(filepath.Join(b.programs, client)); err == nil {
			all = append(all, client)
		}
	}
	return all
}

// The real clients, each set up by leasehold setup alone and speaking with a
// scripted model, in one home, as on a desktop.
func TestRealClients(t *testing.T) {
	b := newBench(t)
	for _, story := range []struct {
		name string
		tell func(*bench)
	}{
		{"are kept apart", (*bench).areKeptApart},
		{"contend", (*bench).contend},
		{"have sub-agents", (*bench).haveSubAgents},
		{"are told in time", (*bench).areToldInTime},
		{"are told what they have forgotten", (*bench).areToldWhatTheyHaveForgotten},
		{"say what a command changed", (*bench).sayWhatACommandChanged},
		{"survive one another", (*bench).surviveOneAnother},
		{"lead", (*bench).lead},
		{"lose no update", (*bench).loseNoUpdate},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(b.in(t)) })
	}
}

// geminiSaid is where a hook beside leasehold's writes what Gemini CLI says to hooks.
const geminiSaid = "gemini-said"

// A bench is a home with the real clients in it.
type bench struct {
	t         *testing.T
	model     *model
	home, dir string // the user's, and that of the repository
	programs  string
	leasehold string
	env       []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if *realClients == "" {
		t.Skip("just clients installs the clients and runs this")
	}
	programs, err := filepath.Abs(*realClients)
	if err != nil {
		t.Fatal(err)
	}
	home := shortDir(t)
	for _, dir := range []string{"bin", "run", "tmp", geminiSaid} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, model: newModel(t), home: home, programs: programs, leasehold: leaseholdIn(t, filepath.Join(home, "bin"))}
	b.env = []string{
		"HOME=" + home, "XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "TMPDIR=" + filepath.Join(home, "tmp"), "TERM=dumb", "NO_COLOR=1", "CI=1",
		"PATH=" + filepath.Dir(b.leasehold) + ":" + programs + ":" + os.Getenv("PATH"),
		"ANTHROPIC_BASE_URL=" + b.model.URL, "ANTHROPIC_API_KEY=sk-ant-scripted", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"SCRIPTED_KEY=x", "GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + b.model.URL, "GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_TELEMETRY_ENABLED=false",
		"COPILOT_PROVIDER_BASE_URL=" + b.model.URL + "/v1", "COPILOT_PROVIDER_API_KEY=x", "COPILOT_MODEL=" + models["copilot"], "COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false",
		"OPENAI_BASE_URL=" + b.model.URL + "/v1", "OPENAI_API_KEY=x", "OPENAI_MODEL=" + models["qwen"],
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"DO_NOT_TRACK=1", "CRUSH_DISABLE_METRICS=1", "CRUSH_DISABLE_PROVIDER_AUTO_UPDATE=1", "CRUSH_DISABLE_DEFAULT_PROVIDERS=1",
	}
	// Setup does not write the hooks of Kimi Code, whose users copy them from the book.
	kimiHooks, err := os.ReadFile("../../book/clients/kimi-hooks.toml")
	if err != nil {
		t.Fatal(err)
	}
	// Gemini CLI would ask its model after 30 turns whether it goes round in circles, and
	// wait for an answer that scripts do not have.
	const opencode = ".config/opencode"
	for name, text := range map[string]string{
		".codex/config.toml":        "model_provider = \"scripted\"\nmodel_auto_compact_token_limit = 150000\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"" + b.model.URL + "/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n",
		".gemini/settings.json":     `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false}, "general": {"disableAutoUpdate": true}, "model": {"disableLoopDetection": true}, "hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "cat > $(mktemp -p ` + filepath.Join(home, geminiSaid) + `)"}]}]}}` + "\n",
		".qwen/settings.json":       `{"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": false}, "general": {"enableAutoUpdate": false}, "model": {"skipLoopDetection": true}}` + "\n",
		".kimi-code/config.toml":    "default_model = \"kimi\"\ntelemetry = false\n\n[providers.scripted]\ntype = \"openai\"\nbase_url = \"" + b.model.URL + "/v1\"\napi_key = \"x\"\n\n[models.kimi]\nprovider = \"scripted\"\nmodel = \"kimi\"\nmax_context_size = 262144\ncapabilities = [\"tool_use\"]\n\n" + string(kimiHooks),
		".config/crush/crush.json":  `{"models": {"large": {"provider": "scripted", "model": "crush"}, "small": {"provider": "scripted", "model": "crush"}}, "providers": {"scripted": {"type": "openai-compat", "base_url": "` + b.model.URL + `/v1", "api_key": "x", "models": [{"id": "crush", "name": "crush", "context_window": 262144, "default_max_tokens": 8192}]}}}` + "\n",
		opencode + "/opencode.json": `{"model": "scripted/m", "small_model": "scripted/m", "autoupdate": false, "permission": {"*": "allow"}, "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": "` + b.model.URL + `/v1", "apiKey": "x"}, "models": {"m": {"name": "m", "limit": {"context": 180000, "output": 8192}}}}}}` + "\n",
	} {
		b.write(filepath.Join(home, name), text)
	}
	// What opencode would install at its first start.
	if err := os.CopyFS(filepath.Join(home, opencode), os.DirFS(filepath.Join(programs, "../../opencode"))); err != nil {
		t.Fatalf("just clients installs what opencode needs: %v", err)
	}
	b.run(home, b.leasehold, append([]string{"setup", "--yes"}, b.guarded()...)...)
	t.Cleanup(func() {
		if pid := b.daemon(); pid != 0 {
			syscall.Kill(pid, syscall.SIGTERM)
		}
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(home, ".local/state/leasehold/daemon.log"))
			for line := range strings.Lines(string(log)) {
				if !strings.Contains(line, `"level":"info"`) {
					t.Log("the daemon: " + line)
				}
			}
		}
	})
	return b
}

// in is the bench for one test, in a repository of its own.
func (b *bench) in(t *testing.T) *bench {
	own := *b
	own.t, own.dir = t, repository(t, filepath.Join(b.home, "shop-"+strconv.FormatInt(time.Now().UnixNano(), 36)))
	return &own
}

// daemon is the process of the daemon, 0 without one.
func (b *bench) daemon() int {
	return listenerOf(filepath.Join(b.home, "run", "leasehold", "leasehold.sock"))
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) write(path, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) read(name string) string {
	text, _ := os.ReadFile(b.path(name))
	return string(text)
}

// call runs leasehold in the repository.
func (b *bench) call(args ...string) string {
	b.t.Helper()
	return b.run(b.dir, b.leasehold, args...)
}

func (b *bench) run(dir, program string, args ...string) string {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, b.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Errorf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
	}
	return string(out)
}

// An agent is a client that follows a script without a person.
type agent struct {
	b      *bench
	client string
	id     string
	cmd    *exec.Cmd
	out    bytes.Buffer
}

// models are what the clients take for a model of theirs.
var models = map[string]string{"claude": "sonnet", "codex": "gpt-5.5", "gemini": "gemini-2.5-flash", "opencode": "scripted/m", "copilot": "copilot", "qwen": "qwen", "kimi": "kimi", "crush": "crush"}

// commands are the clients' for a script that stands behind them.
var commands = map[string][]string{
	"claude":   {"-p", "--model", models["claude"], "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write,Edit,Read,Agent", "--"},
	"codex":    {"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "-m", models["codex"], "--"},
	"gemini":   {"--yolo", "-m", models["gemini"], "-p"},
	"opencode": {"run", "-m", models["opencode"]},
	"copilot":  {"--allow-all-tools", "-p"},
	"qwen":     {"--yolo"},
	"kimi":     {"-m", models["kimi"], "-p"},
	"crush":    {"run", "--quiet"},
}

// resumes are the clients' commands that go on with their last conversation.
var resumes = map[string][]string{
	"claude":   append([]string{"--continue"}, commands["claude"]...),
	"codex":    append(slices.Clone(commands["codex"][:len(commands["codex"])-1]), "resume", "--last"),
	"gemini":   append([]string{"--resume", "latest"}, commands["gemini"]...),
	"opencode": append(slices.Clone(commands["opencode"]), "--continue"),
}

// start starts a client.
func (b *bench) start(client string, s scenario) *agent {
	b.t.Helper()
	return b.startWith(client, s, commands[client])
}

func (b *bench) startWith(client string, s scenario, args []string) *agent {
	b.t.Helper()
	a := &agent{b: b, client: client, id: s.ID}
	args = slices.Clone(args)
	if client != "opencode" { // which puts its arguments into quotes
		args = append(args, s.prompt())
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Minute)
	b.t.Cleanup(cancel)
	a.cmd = exec.CommandContext(ctx, filepath.Join(b.programs, client), args...)
	a.cmd.Dir, a.cmd.Env, a.cmd.WaitDelay = b.dir, b.env, 10*time.Second
	a.cmd.Stdout, a.cmd.Stderr = &a.out, &a.out
	if client == "opencode" {
		a.cmd.Stdin = strings.NewReader(s.prompt())
	}
	if err := a.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	return a
}

// await is what the model has read once it has n results.
func (a *agent) await(n int) []string {
	a.b.t.Helper()
	return a.b.model.await(a.b.t, a.id, n).results
}

// wait waits for the end, and gives what the model has read.
func (a *agent) wait() turn {
	a.b.t.Helper()
	err := a.cmd.Wait()
	read := a.b.model.of(a.id)
	if err != nil || !read.over {
		a.b.t.Errorf("%s, %s: %v; it has done all: %v; its model read %q, and it printed\n%s", a.id, a.client, err, read.over, read.results, &a.out)
	}
	return read
}

// kill kills the client, which may have a launcher: all that came of it but what
// is leasehold's.
func (a *agent) kill() {
	a.b.t.Helper()
	for _, pid := range append(descendants(a.b.t, a.cmd.Process.Pid), a.cmd.Process.Pid) {
		if program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); program != a.b.leasehold {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	a.cmd.Wait()
}

// wants reports what a text lacks.
func (b *bench) wants(who, text string, words ...string) {
	b.t.Helper()
	text = strings.ReplaceAll(text, `\"`, `"`) // of an object
	for _, want := range words {
		if !strings.Contains(text, want) {
			b.t.Errorf("%s read %q, without %q", who, text, want)
		}
	}
}
