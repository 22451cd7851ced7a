package agent_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/agent/agenttest"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

var models = map[string]string{agent.Claude: "sonnet", agent.Codex: "gpt-5-codex", agent.Gemini: "gemini-2.5-pro", agent.OpenCode: "anthropic/claude-sonnet-4-5"}

// Each client, configured by its profile, starts the server as the actor and
// may call exactly the tools of its task without being asked. Its result is
// read from its output.
func TestEveryClientActsAsItsActor(t *testing.T) {
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.task.Model, s.task.BudgetUSD = model, 1.5
			s.task.Prompt = "Do this:\n" +
				"call kv_get {\"name\": \"LEASEHOLD_TOKEN\"}\n" +
				"call spawn_worker {}\n" +
				"cost 0.25\n"
			out, code := s.launch(t, builtIn(t, name))
			if code != 0 {
				t.Fatalf("exit code %d", code)
			}
			g := s.record(t)
			if !slices.Equal(g.Allowed, s.task.Tools) {
				t.Errorf("it may call %v, want %v", g.Allowed, s.task.Tools)
			}
			if slices.Sort(g.Listed); !slices.Equal(g.Listed, []string{"kv_get", "kv_set", "spawn_worker"}) {
				t.Errorf("its server has %v", g.Listed)
			}
			if g.Model != model {
				t.Errorf("its model is %q, want %q", g.Model, model)
			}
			if g.Timeout != 600 {
				t.Errorf("it gives a call %v s", g.Timeout)
			}
			if want := map[string]string{agent.Claude: "1.5"}[name]; g.Budget != want {
				t.Errorf("its budget is %q, want %q", g.Budget, want)
			}
			for name, want := range map[string]string{
				"LEASEHOLD_TOKEN": s.task.Token, "LEASEHOLD_SESSION": s.task.Session, "LEASEHOLD_SOCKET": s.task.Socket, "LEASEHOLD_RUN": "build",
				"LEASEHOLD_PATH": "S1→W1", "LEASEHOLD_LIFE": "2", "LEASEHOLD_RUN_DIR": s.task.RunDir, "LEASEHOLD_STRAY": "",
				"XDG_STATE_HOME": "/state", // where a server that starts a daemon puts its state
			} {
				if g.Env[name] != want || g.Server[name] != want {
					t.Errorf("%s is %q to the agent and %q to its server, want %q", name, g.Env[name], g.Server[name], want)
				}
			}
			o := builtIn(t, name).Outcome(bytes.NewReader(out))
			if o.Result != "spawn_worker is not allowed" || o.Failed != "" {
				t.Errorf("outcome %+v", o)
			}
			switch tells := name == agent.Claude || name == agent.OpenCode; {
			case tells && (o.CostUSD == nil || *o.CostUSD != 0.25):
				t.Errorf("cost %v", o.CostUSD)
			case !tells && o.CostUSD != nil:
				t.Errorf("cost %v of a client that tells none", *o.CostUSD)
			}
		})
	}
}

// Secrets reach the server, and are in no argument.
func TestSecretsGoByEnvironment(t *testing.T) {
	for name := range models {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.task.Prompt = `call kv_get {"name": "LEASEHOLD_TOKEN"}`
			out, code := s.launch(t, builtIn(t, name))
			if code != 0 {
				t.Fatalf("exit code %d", code)
			}
			if o := builtIn(t, name).Outcome(bytes.NewReader(out)); !strings.Contains(o.Result, s.task.Token) {
				t.Errorf("the server acts as %q", o.Result)
			}
			err := filepath.WalkDir(s.task.Scratch, func(file string, d os.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() {
					return err
				}
				text, err := os.ReadFile(file)
				if bytes.Contains(text, []byte(s.task.Token)) || bytes.Contains(text, []byte(s.task.Session)) {
					t.Errorf("%s has a secret", file)
				}
				return err
			})
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		})
	}
}

// The configuration of a project may have an entry for Leasehold, with an environment.
// opencode merges the two, so what the project says there must be overridden.
func TestNoProjectReplacesTheSecretsInOpenCode(t *testing.T) {
	s := newStage(t)
	l, err := builtIn(t, agent.OpenCode).Launch(s.task)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(l.Env, func(pair string) bool { return strings.HasPrefix(pair, "OPENCODE_CONFIG_CONTENT=") })
	if i < 0 {
		t.Fatal("there is no configuration")
	}
	for _, name := range []string{"LEASEHOLD_TOKEN", "LEASEHOLD_SESSION"} {
		if want := fmt.Sprintf("%q:%q", name, "{env:"+name+"}"); !strings.Contains(l.Env[i], want) {
			t.Errorf("%s: there is no %s", l.Env[i], want)
		}
	}
}

// A shell runs the hook, wherever leasehold is installed.
func TestAShellFindsTheProgramOfAHook(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"leasehold", "two words", "it's", "a;b", "$HOME", "a*"} {
		program := filepath.Join(dir, name)
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho $*\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		command := agent.HookCommand(program, "claude")
		if out, err := exec.Command("sh", "-c", command).Output(); err != nil || string(out) != "hook claude\n" {
			t.Errorf("%s prints %q, %v", command, out, err)
		}
		if name == "leasehold" && command != program+" hook claude" {
			t.Errorf("%s is quoted without need", command)
		}
	}
}

// A prompt is passed by stdin, or as an argument if the profile says so, even
// if it looks like a flag.
func TestPromptArrives(t *testing.T) {
	for name := range models {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.task.Prompt = "--model is not meant\nsay so"
			p := builtIn(t, name)
			for _, p.Prompt = range []string{"stdin", "argument"} {
				if _, code := s.launch(t, p); code != 0 {
					t.Fatalf("%s: exit code %d", p.Prompt, code)
				}
				g := s.record(t)
				if prompt, _, _ := strings.Cut(g.Prompt, "\n\nYou are "); strings.TrimSpace(prompt) != s.task.Prompt {
					t.Errorf("by %s it reads %q", p.Prompt, g.Prompt)
				}
				if in := strings.Contains(strings.Join(g.Argv, " "), "is not meant"); in != (p.Prompt == "argument") {
					t.Errorf("by %s its arguments are %q", p.Prompt, g.Argv)
				}
			}
		})
	}
}

// A stand-in refuses what its client would refuse, crashes when it is told to,
// and finds a secret in the arguments of any process.
func TestStandInsAreNotContentWithAnything(t *testing.T) {
	s := newStage(t)
	s.task.Prompt = "say hello"
	for name, args := range map[string][]string{
		agent.Claude: {"--output-format", "text"}, agent.Codex: {"-c", "mcp_servers.leasehold.timeout=1"},
		agent.Gemini: {"-o", "text"}, agent.OpenCode: {"--format", "default"},
	} {
		for _, args := range [][]string{args, {"--no-such-flag"}} {
			p := builtIn(t, name)
			p.Args = args
			if _, code := s.launch(t, p); code != agenttest.Wrong {
				t.Errorf("%s %v: exit code %d", name, args, code)
			}
		}
	}
	claude := builtIn(t, agent.Claude)
	s.task.Prompt = "exit 3"
	if out, code := s.launch(t, claude); code != 3 || len(out) > 0 {
		t.Errorf("exit code %d, want 3, and it prints %s", code, out)
	}
	if runtime.GOOS != "linux" {
		return // arguments of processes are visible only on Linux
	}
	s.task.Prompt = "sh sh -c 'sleep 3; :' " + s.task.Token + " >/dev/null 2>&1 &"
	if _, code := s.launch(t, claude); code != agenttest.Leaked {
		t.Errorf("exit code %d, want %d", code, agenttest.Leaked)
	}
}

// A model is told who it is, how to stay out of the way of others, what every
// agent of the run should know, and that the run was interrupted. A command
// gets only its prompt.
func TestAModelReadsMoreThanItsPrompt(t *testing.T) {
	s := newStage(t)
	s.task.Prompt, s.task.Notes, s.task.Resumed = "Build it.\n", "Leases that are known in advance:\n- none\n", true
	for _, name := range agent.BuiltIns() {
		p := builtIn(t, name)
		if name == agent.Command {
			p.Command = []string{"sh"}
		}
		l, err := p.Launch(s.task)
		if err != nil {
			t.Fatal(err)
		}
		got := string(l.Stdin)
		if name == agent.Command {
			if got != "Build it.\n" {
				t.Errorf("a command reads %q", got)
			}
			continue
		}
		if want := fmt.Sprintf("Build it.\n\nYou are %s, a %s of the run %q; S1 started you. Before you end, report your result with actor_report. ", s.task.Path, s.task.Role, s.task.Run); !strings.HasPrefix(got, want) {
			t.Errorf("%s reads %q, want first %q", name, got, want)
		}
		before, after, _ := strings.Cut(got, "This run was interrupted")
		if !strings.HasSuffix(before, "\n"+tools.Protocol+"\n\n") || !strings.HasSuffix(after, "\n\nLeases that are known in advance:\n- none\n") {
			t.Errorf("%s reads %q", name, got)
		}
	}
}

func TestPlaceholders(t *testing.T) {
	s := newStage(t)
	s.task.Prompt, s.task.Model = "do {name}", "tiny"
	p := agent.Profile{
		Command: []string{"sh", "-c", "echo {name} {path} {run} {model} ${name} {nobody} {} { {directory} {mcp_config}", "{prompt}"},
		Args:    []string{"--at={directory}"},
		Env:     map[string]string{"WHO": "{run}/{name}"},
	}.Over("mine")
	if faults := p.Faults(); faults != nil {
		t.Fatal(faults)
	}
	l, err := p.Launch(s.task)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(s.task.Scratch, "mcp.json")
	want := []string{
		l.Argv[0], "-c", "echo W1 S1→W1 build tiny ${name} {nobody} {} { " + s.task.Directory + " " + config,
		"do {name}", "--at=" + s.task.Directory,
	}
	if !slices.Equal(l.Argv, want) {
		t.Errorf("argv %q\nwant %q", l.Argv, want)
	}
	if len(l.Stdin) > 0 {
		t.Errorf("the prompt goes by stdin too: %q", l.Stdin)
	}
	if !slices.Contains(l.Env, "WHO=build/W1") {
		t.Errorf("env %q", l.Env)
	}
	info, err := os.Stat(config)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the configuration: %v %v", info, err)
	}
}

// An environment consists of that of leasehold dispatch, the profile, the task
// and Leasehold's variables, in this order. Another actor's variables are
// removed.
func TestEnvironment(t *testing.T) {
	s := newStage(t)
	t.Setenv("A", "dispatcher")
	t.Setenv("B", "dispatcher")
	t.Setenv("C", "dispatcher")
	p := agent.Profile{Command: []string{"sh"}, Env: map[string]string{"B": "profile", "C": "profile"}}.Over("mine")
	s.task.Env = map[string]string{"C": "task", "LEASEHOLD_TOKEN": "mine"}
	l, err := p.Launch(s.task)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A=dispatcher", "B=profile", "C=task", "LEASEHOLD_TOKEN=" + s.task.Token, "LEASEHOLD_RUN_ID=" + s.task.RunID} {
		if !slices.Contains(l.Env, want) {
			t.Errorf("no %s in %q", want, l.Env)
		}
	}
	names := make(map[string]bool)
	for _, pair := range l.Env {
		name, _, _ := strings.Cut(pair, "=")
		if names[name] || name == "LEASEHOLD_STRAY" {
			t.Errorf("%s", pair)
		}
		names[name] = true
	}
	if l.Dir != s.task.Directory {
		t.Errorf("it runs in %s", l.Dir)
	}
}

// The name leasehold runs the binary that dispatched the run.
func TestLeaseholdIsFound(t *testing.T) {
	s := newStage(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "leasehold")
	if err := os.WriteFile(elsewhere, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := agent.Profile{Command: []string{"/bin/sh"}}.Over("mine")
	for binary, leads := range map[string]string{
		filepath.Join(s.bin, "leasehold"): s.bin,
		elsewhere:                         filepath.Dir(elsewhere),
		self:                              s.bin, // the same file
	} {
		s.task.Leasehold = binary
		l, err := p.Launch(s.task)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(l.Env, func(pair string) bool { return strings.HasPrefix(pair, "PATH=") })
		if first, _, _ := strings.Cut(l.Env[i][len("PATH="):], ":"); first != leads {
			t.Errorf("%s: PATH is led by %s, want %s", binary, first, leads)
		}
	}
	t.Setenv("PATH", "/usr/bin:/bin")
	s.task.Leasehold = self
	l, err := p.Launch(s.task)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(s.task.Scratch, "bin", "leasehold")
	if to, err := os.Readlink(link); err != nil || to != self {
		t.Errorf("%s leads to %s: %v", link, to, err)
	}
	if i := slices.IndexFunc(l.Env, func(pair string) bool { return strings.HasPrefix(pair, "PATH="+filepath.Dir(link)+":") }); i < 0 {
		t.Errorf("env %q", l.Env)
	}
}

// A launch that is impossible returns an error that says what to do.
func TestLaunchRefuses(t *testing.T) {
	s := newStage(t)
	if err := os.WriteFile(filepath.Join(s.task.Directory, "plain.sh"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.task.Directory, "here.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(s.task.Directory)
	for want, p := range map[string]agent.Profile{
		"here.sh is not in the PATH: install it, or name it by its whole path":        {Command: []string{"here.sh"}, Env: map[string]string{"PATH": "."}},
		"an argument of sh has a secret in it: name the variable that has it instead": {Command: []string{"sh", "-c", "echo " + s.task.Token}},
		"nobody is not in the PATH: install it, or name it by its whole path":         {Command: []string{"nobody"}},
		"./plain.sh cannot be executed: chmod +x it":                                  {Command: []string{"./plain.sh"}},
		". is a directory: name a program in it":                                      {Command: []string{"./."}},
		"is not there: create it, or name another program":                            {Command: []string{"/no/such/agent"}},
		"an argument of 140000 bytes is longer than a process takes (131071)":         {Command: []string{"sh"}, Prompt: "argument"},
		"variable A has 140002 bytes, and a process takes 131071 with its name":       {Command: []string{"sh"}, Env: map[string]string{"A": "{prompt}"}},
		"the profile has no command":                                                  {},
	} {
		s.task.Prompt = strings.Repeat("x", 140_000)
		_, err := p.Over("mine").Launch(s.task)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), s.task.Directory, "."), want) {
			t.Errorf("%+v:\n%v\nwant %s", p, err, want)
		}
	}
}

// Gemini CLI gets a separate home with all of the user's files, and with
// Leasehold added to the settings.
func TestGeminiKeepsWhatTheUserHas(t *testing.T) {
	s := newStage(t)
	home := t.TempDir()
	t.Setenv("GEMINI_CLI_HOME", home)
	s.task.Prompt = "say hello"
	theirs := filepath.Join(home, ".gemini")
	if err := os.Mkdir(theirs, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(theirs, "oauth_creds.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"{ // theirs\n\"model\": {\"maxSessionTurns\": 12345678901234567890}, /* a */ \"url\": \"http://x/*y\", \"mcpServers\": {\"ours\": {\"command\": \"x\"}}}": "",
		`null`: "settings.json must be a JSON object, for leasehold to be in it",
		`{`:    "settings.json must be a JSON object, for leasehold to be in it",
	} {
		if err := os.WriteFile(filepath.Join(theirs, "settings.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := builtIn(t, agent.Gemini).Launch(s.task)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		mine := filepath.Join(s.task.Scratch, "gemini", ".gemini")
		have, err := os.ReadFile(filepath.Join(mine, "settings.json"))
		for _, part := range []string{"12345678901234567890", `"http://x/*y"`, `"ours"`, `"leasehold"`} {
			if !strings.Contains(string(have), part) {
				t.Errorf("%v: no %s in\n%s", err, part, have)
			}
		}
		if to, err := os.Readlink(filepath.Join(mine, "oauth_creds.json")); err != nil || to != filepath.Join(theirs, "oauth_creds.json") {
			t.Errorf("credentials: %s %v", to, err)
		}
		if _, code := s.launch(t, builtIn(t, agent.Gemini)); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
