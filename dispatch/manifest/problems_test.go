package manifest_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/work"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// Every manifest in testdata is invalid, and the file of the same name has the
// expected problems: all of them, in the order of the file.
func TestProblems(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	files, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		_, err = manifest.Parse(name, text, dir)
		var problems manifest.Problems
		if !errors.As(err, &problems) {
			t.Errorf("%s: %v", file, err)
			continue
		}
		have := strings.ReplaceAll(err.Error(), dir, "DIR") + "\n"
		golden := strings.TrimSuffix(file, ".toml") + ".txt"
		if *update {
			if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil || have != string(want) {
			t.Errorf("%s: %v\nsays\n%sand must say\n%s", file, err, have, want)
		}
		for _, p := range problems {
			if lines := strings.Count(string(text), "\n") + 1; p.Line < 1 || p.Line > lines || p.Column < 1 {
				t.Errorf("%s: %v is nowhere in %d lines", file, p, lines)
			}
		}
	}
}

// A script whose first line names no program would fail only when the agent starts.
func TestTheProgramOfAScriptExists(t *testing.T) {
	dir := t.TempDir()
	for line, problem := range map[string]string{
		"#!/no/such/program":                              `DIR/agent begins with "#!/no/such/program": /no/such/program is not there`,
		"#! /no/such/program -e":                          `DIR/agent begins with "#! /no/such/program -e": /no/such/program is not there`,
		"#!/bin/sh\r":                                     `DIR/agent begins with "#!/bin/sh\r": no program has that name: save it with the line ends of Unix`,
		"#!/usr/bin/env no-program":                       `DIR/agent begins with "#!/usr/bin/env no-program": no-program is not in the PATH`,
		"#!/no/such/program/" + strings.Repeat("x/", 100): `DIR/agent begins with "#!/no/such/program/` + strings.Repeat("x/", 100) + `": /no/such/program/`,
		"#!sh":                         `DIR/agent begins with "#!sh": DIR/sh is not there`,
		"#!/usr/bin/env":               "",
		"#!/bin/sh no-program":         "",
		"#!/bin/sh\t-e":                "",
		"#!/usr/bin/env -S sh -e":      "",
		"#!/usr/bin/env A=1 sh":        "",
		"#!/usr/bin/env sh":            "",
		"#!/bin/sh -e":                 "",
		"echo no line of that kind":    "",
		"#!":                           "",
		"\x7fELF is not a script, but": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, "agent"), []byte(line+"\nexit\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := manifest.Parse("m.toml", []byte("[agents.a]\ncommand = [\"./agent\"]\n[root]\nagent = \"a\"\nprompt = \"x\"\n"), dir)
		want := "m.toml:2:1: agents.a.command cannot be run: " + strings.ReplaceAll(problem, "DIR", dir)
		if problem == "" && err != nil || problem != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", line, err, problem)
		}
	}
}

// A worktree begins at a commit, so a repository without one is refused before the run.
func TestWorktreesNeedACommit(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	text := []byte("[agents.sh]\ncommand = [\"sh\"]\n[root]\nagent = \"sh\"\nprompt = \"x\"\n[worker]\nworktree = true\n")
	git("init", "--quiet")
	if _, err := manifest.Parse("m.toml", text, dir); err == nil || !strings.Contains(err.Error(), "m.toml:7:1: worker.worktree needs a commit to begin at, and the repository of "+dir+" has none") {
		t.Errorf("without a commit: %v", err)
	}
	git("commit", "--quiet", "--allow-empty", "-m", "first")
	if _, err := manifest.Parse("m.toml", text, dir); err != nil {
		t.Errorf("with one: %v", err)
	}
}

// A manifest that is cut anywhere, or has any other value in the place of one,
// is either valid or refused with a position. Nothing else happens.
func TestAnyTextIsRefusedWithAPlace(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	dir := t.TempDir()
	base := "[run]\nname = \"x\"\nmax_depth = 3\n[run.store]\nmax_bytes = 4_000_000\n[agents.sh]\ncommand = [\"sh\"]\nenv = { A = \"b\" }\n" +
		"[root]\nagent = \"sh\"\nprompt = '''\nhello\n'''\n[worker]\nworktree = false\n[[leases]]\nscope = \"run\"\nkey = \"k\"\npurpose = \"p\"\n"
	if _, err := manifest.Parse("m.toml", []byte(base), dir); err != nil {
		t.Fatal(err)
	}
	check := func(text string) {
		t.Helper()
		_, err := manifest.Parse("m.toml", []byte(text), dir)
		var problems manifest.Problems
		if err == nil {
			return
		}
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("%q: %v", text, err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Line > strings.Count(text, "\n")+1 || p.Column < 1 || p.Text == "" {
				t.Fatalf("%q: %v", text, p)
			}
		}
	}
	for i := range base {
		check(base[:i])
		check(base[i:])
	}
	values := []string{
		"1", "-1", "1.5", "nan", "-inf", "9223372036854775807", "true", `""`, `"x"`, `"\u0000"`, "[]", "[1]", `["a", ""]`, "[[]]", "{}", "{ a = 1 }",
		`[{ scope = "run" }]`, "1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "0x10", `"` + strings.Repeat("y", 1000) + `"`,
	}
	for _, line := range strings.SplitAfter(base, "\n") {
		key, _, ok := strings.Cut(line, " = ")
		if !ok {
			continue
		}
		for _, value := range values {
			check(strings.Replace(base, line, key+" = "+value+"\n", 1))
			check(strings.Replace(base, line, line+key+"x = "+value+"\n", 1))
			check(strings.Replace(base, line, key+".sub = "+value+"\n", 1))
		}
	}
	for _, table := range []string{"run", "agents", "root", "sublead", "worker", "leases"} {
		for _, value := range values {
			check(table + " = " + value + "\n")
		}
		for _, header := range []string{"[" + table + "]", "[[" + table + "]]", "[" + table + ".x]", "[[" + table + ".x]]", `["` + table + `".""]`} {
			check(header + "\n" + base)
			check(base + header + "\n")
			check(header + "\nx = 1\n")
		}
	}
}

// A prompt that is passed as an argument can be too long for one.
func TestAPromptThatNoProcessCouldBeGivenIsAProblem(t *testing.T) {
	long := strings.Repeat("x", agent.MaxArgument+1)
	const tooLong = `m:8:1: root.prompt makes an argument or variable of %d bytes for agent "s", and a process takes 131071: pass it by stdin, or name a file in it`
	for _, c := range []struct{ profile, prompt, want string }{
		{`prompt = "argument"`, long, fmt.Sprintf(tooLong, len(long))},
		{`args = ["{prompt}"]`, long, fmt.Sprintf(tooLong, len(long))},
		{`env = { P = "{prompt}" }`, long, fmt.Sprintf(tooLong, len("P=")+len(long))},
		{`env = { P = "{prompt}" }`, long[2:], fmt.Sprintf(tooLong, len(long))},
		{`prompt = "argument"`, long[1:], "<nil>"},
		{`env = { P = "{prompt}" }`, long[3:], "<nil>"},
		{`prompt = "stdin"`, long, "<nil>"},
	} {
		_, err := manifest.Parse("m", []byte("[run]\nname = \"r\"\n[agents.s]\ncommand = [\"sh\"]\n"+c.profile+"\n[root]\nagent = \"s\"\nprompt = \""+c.prompt+"\"\n"), t.TempDir())
		if got := fmt.Sprint(err); got != c.want {
			t.Errorf("%s, and a prompt of %d bytes: %.200s\nwant %s", c.profile, len(c.prompt), got, c.want)
		}
	}
}

// A model is told more than its prompt, and both are one argument.
func TestAPromptThatIsTooLongWithWhatAModelIsToldIsAProblem(t *testing.T) {
	for prompt, want := range map[string]string{
		strings.Repeat("x", agent.MaxArgument-500):  "root.prompt makes an argument or variable of ",
		strings.Repeat("x", agent.MaxArgument-2000): "<nil>",
	} {
		_, err := manifest.Parse("m", []byte("[run]\nname = \"r\"\n[agents.s]\nextends = \"claude\"\ncommand = [\"sh\"]\nprompt = \"argument\"\n[root]\nagent = \"s\"\nprompt = \""+prompt+"\"\n"), t.TempDir())
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("a prompt of %d bytes: %.200s\nwant %s", len(prompt), got, want)
		}
	}
}

// What a daemon would refuse of the order for the root is a problem of the manifest.
func TestARootThatADaemonWouldRefuseIsAProblem(t *testing.T) {
	for line, want := range map[string]string{
		`env = { A = "` + strings.Repeat("x", work.MaxEnv) + `" }`: "m:7:1: root.env must be at most 32768 bytes in all",
		`env = { "A-B" = "x" }`:                      "m:7:1: root.env must have names of A-Z a-z 0-9 _, not \"A-B\"",
		`model = "` + strings.Repeat("x", 129) + `"`: "m:7:1: root.model must be at most 128 printable bytes",
		`env = { A = "\u0000" }`:                     "m:7:9: root.env.A has a zero byte, which no process can be given",
		`env = { A = "x" }`:                          "<nil>",
	} {
		_, err := manifest.Parse("m", []byte("[run]\nname = \"r\"\n[agents.s]\ncommand = [\"sh\"]\n[root]\nagent = \"s\"\n"+line+"\nprompt = \"x\"\n"), t.TempDir())
		if got, _, _ := strings.Cut(fmt.Sprint(err), "\n"); got != want {
			t.Errorf("%.40s:\n%s\nwant %s", line, got, want)
		}
	}
}
