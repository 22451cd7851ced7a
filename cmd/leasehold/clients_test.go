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
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	realClients = flag.String("clients", "", "the directory with the programs of the real clients, as just clients installs them")
	clientEdits = flag.Int("clients.edits", 40, "how many edits the agents of TestRealClientsLoseNoUpdate make")
)

// A bench is a home with the real clients in it, each set up by leasehold setup
// alone and speaking with a scripted model.
type bench struct {
	t         *testing.T
	model     *model
	home, dir string // the user's, and that of the repository
	programs  string
	leasehold string
	env       []string
}

// clientNames are those that are benched.
var clientNames = []string{"claude", "codex", "gemini", "opencode"}

func newBench(t *testing.T) *bench {
	t.Helper()
	if *realClients == "" {
		t.Skip("just clients installs the clients and runs this")
	}
	programs, err := filepath.Abs(*realClients)
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, model: newModel(t), home: home, dir: repository(t, filepath.Join(home, "shop")), programs: programs, leasehold: filepath.Join(home, "bin", "leasehold")}
	t.Cleanup(func() { os.RemoveAll(home) })
	build := exec.CommandContext(t.Context(), "go", "build", "-o", b.leasehold, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{"run", "tmp"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.env = []string{
		"HOME=" + home, "XDG_RUNTIME_DIR=" + filepath.Join(home, "run"), "TMPDIR=" + filepath.Join(home, "tmp"), "TERM=dumb", "NO_COLOR=1", "CI=1",
		"PATH=" + filepath.Dir(b.leasehold) + ":" + programs + ":" + os.Getenv("PATH"),
		"ANTHROPIC_BASE_URL=" + b.model.URL, "ANTHROPIC_API_KEY=sk-ant-scripted", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"SCRIPTED_KEY=x", "GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + b.model.URL, "GEMINI_CLI_TRUST_WORKSPACE=true", "GEMINI_TELEMETRY_ENABLED=false",
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
	}
	for name, text := range map[string]string{
		".codex/config.toml":             "model_provider = \"scripted\"\n\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"" + b.model.URL + "/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\n",
		".gemini/settings.json":          `{"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": false}, "general": {"disableAutoUpdate": true}}` + "\n",
		".config/opencode/opencode.json": `{"model": "scripted/m", "small_model": "scripted/m", "autoupdate": false, "permission": {"*": "allow"}, "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted", "options": {"baseURL": "` + b.model.URL + `/v1", "apiKey": "x"}, "models": {"m": {"name": "m"}}}}}` + "\n",
	} {
		b.write(filepath.Join(home, name), text)
	}
	b.run(home, "", b.leasehold, append([]string{"setup", "--yes"}, clientNames...)...)
	t.Cleanup(func() {
		stop := exec.Command(b.leasehold, "stop")
		stop.Env = b.env
		stop.Run()
	})
	return b
}

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
	text, _ := os.ReadFile(filepath.Join(b.dir, name))
	return string(text)
}

func (b *bench) run(dir, stdin, program string, args ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, b.env, strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.t.Errorf("%s: %v\n%s", filepath.Base(program), err, &out)
	}
	return out.String()
}

// agent has a client follow a script without a person, and gives what its model
// read.
func (b *bench) agent(client string, s scenario) []string {
	b.t.Helper()
	var args []string
	stdin := ""
	switch client {
	case "claude":
		args = []string{"-p", "--model", "sonnet", "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write,Edit,Read,Agent", "--"}
	case "codex":
		args = []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", "-m", "gpt-5.5", "--"}
	case "gemini":
		args = []string{"--yolo", "-m", "gemini-2.5-flash", "-p"}
	case "opencode":
		args = []string{"run", "-m", "scripted/m"}
	}
	if client == "opencode" { // which puts its arguments into quotes
		stdin = s.prompt()
	} else {
		args = append(args, s.prompt())
	}
	out := b.run(b.dir, stdin, filepath.Join(b.programs, client), args...)
	read := b.model.read(s.ID)
	want := 0
	for _, step := range s.Steps {
		want += len(step)
	}
	if len(read) != want {
		b.t.Errorf("%s made %d calls of %d; its model read %q, has the tools %v, and it printed\n%s", client, len(read), want, read, b.model.tools, out)
	}
	return read
}

func one(tool string, args map[string]any) []op { return []op{{tool, args}} }

// A client that writes to a file keeps all others from it: each is refused before
// anything happens, and its model reads who has it, until when, and what to do.
func TestRealClientsAreKeptApart(t *testing.T) {
	b := newBench(t)
	holder := newHooked(t, b.dir) // somebody who works on it
	for i, client := range clientNames {
		t.Run(client, func(t *testing.T) {
			b := *b
			b.t = t
			mine, theirs := fmt.Sprintf("mine-%d.txt", i), fmt.Sprintf("theirs-%d.txt", i)
			b.write(filepath.Join(b.dir, theirs), "theirs\n")
			holder.t = t
			holder.asks(&b, theirs)
			read := b.agent(client, scenario{ID: client, Steps: [][]op{
				one("write", map[string]any{"path": filepath.Join(b.dir, mine), "text": "written by " + client + "\n"}),
				one("read", map[string]any{"path": filepath.Join(b.dir, theirs)}),
				one("edit", map[string]any{"path": filepath.Join(b.dir, theirs), "old": "theirs", "new": "mine"}),
				one("run_lease_acquire", map[string]any{"key": "file:" + mine}),
			}})
			if got := b.read(mine); got != "written by "+client+"\n" {
				t.Errorf("what nobody had leased it did not write: %q, it read %q", got, read)
			}
			if got := b.read(theirs); got != "theirs\n" {
				t.Errorf("what another has leased it has changed to %q", got)
			}
			if len(read) != 4 {
				return
			}
			for _, want := range []string{`lease "file:` + theirs + `" held by actor`, "(claude-code-shop", "expires in ", "is not changed", "wait_secs 50"} {
				if !strings.Contains(read[2], want) {
					t.Errorf("its model read %q, without %q", read[2], want)
				}
			}
			if !strings.Contains(read[3], "already yours") && !strings.Contains(read[3], `"reentrant":true`) {
				t.Errorf("the file that it has written to is not its session's: %q", read[3])
			}
		})
	}
}

// asks has the hook ask for a write by a client that does nothing else.
func (h *hooked) asks(b *bench, file string) {
	h.t.Helper()
	cmd := exec.Command(b.leasehold, "hook", "claude")
	cmd.Dir, cmd.Env = b.dir, append(slices.Clone(b.env), fmt.Sprintf("CLAUDE_PID=%d", h.pid))
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":%q}}`, b.dir, file))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		h.t.Fatalf("%v %s", err, out)
	}
}

// All clients at once change the same files, each line of them by one edit: none is
// lost. Who is refused waits for the lease and tries again.
func TestRealClientsLoseNoUpdate(t *testing.T) {
	b := newBench(t)
	const files = 4
	for f := range files {
		b.write(filepath.Join(b.dir, fmt.Sprintf("f%d.txt", f)), "end\n")
	}
	agents := 4
	if *clientEdits >= 200 {
		agents = 10
	}
	var all sync.WaitGroup
	for a := range agents {
		client := clientNames[a%len(clientNames)]
		all.Go(func() {
			var s scenario
			s.ID = fmt.Sprintf("%s-%d", client, a)
			for e := a; e < *clientEdits; e += agents {
				path := filepath.Join(b.dir, fmt.Sprintf("f%d.txt", e%files))
				s.Steps = append(s.Steps,
					one("run_lease_acquire", map[string]any{"key": "file:" + filepath.Base(path), "wait_secs": 50, "ttl_secs": 60}),
					one("read", map[string]any{"path": path}),
					one("edit", map[string]any{"path": path, "old": "end", "new": fmt.Sprintf("edit %d\nend", e)}),
					one("run_lease_release", map[string]any{"lease_id": "of the last"}))
			}
			b.agent(client, s)
		})
	}
	all.Wait()
	for e := range *clientEdits {
		name := fmt.Sprintf("f%d.txt", e%files)
		if !strings.Contains(b.read(name), fmt.Sprintf("edit %d\n", e)) {
			t.Errorf("edit %d of %s is lost", e, name)
		}
	}
}
