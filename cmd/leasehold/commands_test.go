package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
)

// everyCommand returns the commands that users see, groups included.
func everyCommand() (all []*cobra.Command) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
	}
	walk(root())
	return all
}

// The help and the book list the same variables.
func TestTheBookNamesEveryVariable(t *testing.T) {
	page, err := os.ReadFile("../../book/src/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| variable | is |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	_, help, _ := strings.Cut(root().Long, "Environment:\n")
	names := regexp.MustCompile(`(?m)\bLEASEHOLD_[A-Z_]+|^  [A-Z_]+|\x60[A-Z_]+\x60`)
	list := func(text string) []string {
		var all []string
		for _, name := range names.FindAllString(text, -1) {
			all = append(all, strings.Trim(name, " `"))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if help, book := list(help), list(table); len(book) == 0 || !slices.Equal(help, book) {
		t.Errorf("the help lists %v, and the book %v", help, book)
	}
}

// wordsOf returns a command's words after leasehold.
func wordsOf(c *cobra.Command) []string { return strings.Fields(c.CommandPath())[1:] }

// said runs the command in this process.
func said(t *testing.T, args ...string) (code int, text string) {
	var out strings.Builder
	code = run(t.Context(), args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// Each command has an example, and refuses what it does not know by name: a flag, an
// argument too many, and what is not in its group.
func TestEveryCommandExplainsItselfAndRefusesTheUnknown(t *testing.T) {
	for _, c := range everyCommand() {
		words := wordsOf(c)
		name := strings.Join(words, " ")
		if c.Example == "" && c.Name() != "help" {
			t.Errorf("%s has no example", name)
		}
		if code, text := said(t, append(slices.Clone(words), "--nonsense")...); code != 2 || !strings.Contains(text, "unknown flag: --nonsense") || !strings.Contains(text, "hint: ") {
			t.Errorf("%s --nonsense: exit code %d: %s", name, code, text)
		}
		// These take any arguments, and say themselves what is wrong with them.
		if slices.Contains([]string{"call", "exec", "queue redrive", "runs rm", "setup"}, name) {
			continue
		}
		code, text := said(t, append(slices.Clone(words), "nonsense", "2", "3", "4", "5")...)
		named := strings.Contains(text, `"nonsense`) || strings.Contains(text, "and 5 were given")
		if code != 2 || !named || !strings.Contains(text, "hint: ") {
			t.Errorf("%s nonsense: exit code %d: %s", name, code, text)
		}
	}
}

// listed finds words that are said to be all values of a flag: a, b or c.
var listed = regexp.MustCompile(`^([a-z_]+(?:, [a-z_]+)*) or ([a-z_]+)(?: \(.*)?$`)

// A flag or an argument that takes one of some words refuses another one as a mistake of
// the caller, before anything is done, and names them all.
func TestEveryFixedSetOfWordsIsChecked(t *testing.T) {
	t.Setenv("LEASEHOLD_SOCKET", filepath.Join(t.TempDir(), "none"))
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	check := func(words []string, args ...string) {
		t.Helper()
		code, text := said(t, args...)
		if code != 2 || !strings.Contains(text, "hint: ") {
			t.Errorf("%v: exit code %d: %s", args, code, text)
		}
		for _, word := range append(words, `"no such"`) {
			if !strings.Contains(text, word) {
				t.Errorf("%v does not name %s: %s", args, word, text)
			}
		}
	}
	flags := 0
	for _, c := range everyCommand() {
		if !c.HasAvailableSubCommands() && len(c.ValidArgs) > 0 {
			check(c.ValidArgs, append(wordsOf(c), "no such")...)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			var words []string
			if value, ok := f.Value.(interface{ Words() []string }); ok {
				words = value.Words()
			} else if found := listed.FindStringSubmatch(usage); found != nil {
				words = append(strings.Split(found[1], ", "), found[2])
			} else {
				return
			}
			flags++
			check(append(words, "--"+f.Name), append(wordsOf(c), "--"+f.Name, "no such")...)
		})
	}
	if flags < 9 {
		t.Errorf("%d flags that take one of some words were found", flags)
	}
	check([]string{"all", "leases", "layer", "tree", "messages", "queue"}, "mcp", "--tools", "no such")
	check([]string{"claude", "codex", "gemini", "opencode", "kilo", "copilot", "qwen", "kimi", "crush", "cursor", "vscode", "git"}, "setup", "no such")
}

// What names something that the daemon or a directory can list is completed.
func TestEveryNameIsCompleted(t *testing.T) {
	isNew := []string{"token issue", "cluster drain"} // or only a database can list it
	argument, flag := regexp.MustCompile(` \[?[A-Z_]+\b`), regexp.MustCompile(` \(?--`)
	for _, c := range everyCommand() {
		name := strings.Join(wordsOf(c), " ")
		if argument.MatchString(flag.Split(c.Use, 2)[0]) && c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 && !slices.Contains(isNew, name) {
			t.Errorf("%s completes no argument", c.UseLine())
		}
		for _, flag := range []string{"actor", "holder", "key", "layer", "lease", "parent", "prefix", "queue", "run"} {
			f := c.Flags().Lookup(flag)
			if f == nil || f.Value.Type() == "bool" {
				continue
			}
			// A new run may have any name.
			if _, ok := c.GetFlagCompletionFunc(flag); !ok && name+" --"+flag != "dispatch --run" {
				t.Errorf("%s completes nothing for --%s", name, flag)
			}
		}
	}
}

// The help says what each flag takes, and not only that it is a text. The shell completes
// what is in the file system.
func TestEveryFlagSaysWhatItTakes(t *testing.T) {
	for _, c := range everyCommand() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			takes, _ := pflag.UnquoteUsage(f)
			if slices.Contains([]string{"string", "strings", "uint"}, takes) || takes != "DSN" && takes != "URL" && takes != "N" && takes != strings.ToLower(takes) {
				t.Errorf("%s --%s %s: what is that?", c.CommandPath(), f.Name, takes)
			}
			if _, ok := c.GetFlagCompletionFunc(f.Name); !ok && slices.Contains([]string{"file", "directory", "path"}, takes) {
				t.Errorf("%s completes nothing for --%s", c.CommandPath(), f.Name)
			}
		})
	}
}

// What prints a list prints it for programs, too.
func TestEveryListHasJSON(t *testing.T) {
	for _, c := range everyCommand() {
		name := strings.Join(wordsOf(c), " ")
		// A whole terminal, a text as it was written, and what is not asked for its answer.
		if c.GroupID != groupLook && c.Name() != "list" || slices.Contains([]string{"lease", "logs", "top"}, name) {
			continue
		}
		if c.Flags().Lookup("json") == nil {
			t.Errorf("%s has no --json", name)
		}
	}
}

// A command gets all runs with all actors, wherever the daemon's pages end: between two
// runs, or within one.
func TestRunsAreReadToTheLastPage(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	add := func(run int, name, role string) {
		var made struct{}
		asOperator(t, "operator_actor_add", map[string]any{"run": fmt.Sprint("r", run), "name": name, "role": role}, &made)
	}
	for run := range 4 {
		add(run, "root", "root")
		for worker := range run {
			add(run, fmt.Sprint("W", worker), "worker")
		}
	}
	c := dialOperator(t)
	defer c.Close()
	runs := func(args map[string]any) (runs any) {
		answer, err := connection.Call(t.Context(), c, "operator_tree", args)
		if err == nil {
			err = json.Unmarshal(answer.Object, &runs)
		}
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	whole := runs(nil)
	for limit := range 6 {
		if paged := runs(map[string]any{"limit": limit + 1}); !reflect.DeepEqual(paged, whole) {
			t.Errorf("in pages of %d actors: %v\nwant %v", limit+1, paged, whole)
		}
	}
}

// atAnOlderDaemon are the commands that call a daemon, with arguments that they accept.
// They all fail at one that has none of their tools.
var atAnOlderDaemon = map[string]string{
	"actor add":     "--name x --role root",
	"actor end":     "x",
	"actor token":   "x",
	"backup":        "copy",
	"call":          "nothing",
	"dispatch":      "manifest.toml",
	"events":        "",
	"exec":          "--lease x -- true",
	"history":       "x",
	"kv":            "",
	"launcher":      "--run r",
	"lease check":   "--key x --token 1",
	"leases":        "",
	"open":          "",
	"queue":         "",
	"queue cancel":  "00000000-0000-4000-8000-000000000000",
	"queue dead":    "",
	"queue list":    "",
	"queue pause":   "x --reason y",
	"queue redrive": "x",
	"queue resume":  "x",
	"queue show":    "00000000-0000-4000-8000-000000000000",
	"queue stats":   "",
	"revoke":        "x --reason y",
	"runs":          "",
	"runs rm":       "x",
	"token issue":   "x --role reader",
	"token list":    "",
	"token revoke":  "x",
	"token rotate":  "x",
	"tree":          "",
}

// These call no daemon, find out more about it, or end it.
var withoutTools = []string{
	"", "actor", "cluster", "cluster drain", "cluster restored", "completion", "completion bash", "completion fish", "completion powershell", "completion zsh",
	"doctor", "guard", "guard install", "guard status", "guard uninstall", "help", "hook", "init", "lease", "logs", "mcp", "migrate",
	"restart", "serve", "setup", "spotlight", "status", "stop", "token", "top", "version",
}

// A command that the daemon does not understand ends at once, and says which of the two
// to replace.
func TestEveryCommandAtADaemonWithoutItsTools(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	manifest := "[run]\nname = \"r\"\n[agents.a]\nextends = \"command\"\ncommand = [\"sh\"]\n[root]\nagent = \"a\"\nprompt = \"x\"\n"
	if err := os.WriteFile(filepath.Join(dir, "manifest.toml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := builtAs(t, dir, "9.0.0")
	serveWithoutTools(t, filepath.Join(dir, "s"))
	env := append(connection.WithoutSecrets(os.Environ()),
		"HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_RUNTIME_DIR="+dir, "LEASEHOLD_SOCKET="+filepath.Join(dir, "s"), "LEASEHOLD_RUN=r")
	for _, c := range everyCommand() {
		name := strings.Join(wordsOf(c), " ")
		args, ok := atAnOlderDaemon[name]
		if !ok {
			if !slices.Contains(withoutTools, name) {
				t.Errorf("%s: does it call tools? add it to one of the two lists", name)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, binary, append(wordsOf(c), strings.Fields(args)...)...)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if ctx.Err() != nil {
			t.Errorf("%s does not end: %s", name, out)
		}
		cancel()
		if err == nil || !strings.HasSuffix(string(out), "hint: the daemon is version 8.0.0 and older than this command, version 9.0.0: leasehold restart starts the installed version, and no session ends by that\n") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}

// serveWithoutTools is a daemon of version 8.0.0 that knows no tool.
func serveWithoutTools(t *testing.T, socket string) {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() { // ends with the listener
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go answerWithoutTools(nc)
		}
	}()
}

func answerWithoutTools(nc net.Conn) {
	defer nc.Close()
	in, out := bufio.NewScanner(nc), json.NewEncoder(nc)
	type object = map[string]any
	if !in.Scan() { // the hello
		return
	}
	_ = out.Encode(object{"ok": true, "version": "8.0.0", "handle": "h", "actor": object{"actor_id": "00000000-0000-4000-8000-000000000000", "name": "x", "path": "x", "role": "operator"}})
	for in.Scan() {
		var asked struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(in.Bytes(), &asked)
		answer := object{"jsonrpc": "2.0", "id": asked.ID}
		switch asked.Method {
		case "initialize":
			answer["result"] = object{"protocolVersion": "2025-06-18", "capabilities": object{"tools": object{}}, "serverInfo": object{"name": "leasehold", "version": "8.0.0"}}
		case "tools/list":
			answer["result"] = object{"tools": []object{}}
		case "tools/call":
			answer["error"] = object{"code": -32602, "message": "tool not found"}
		default:
			continue
		}
		if out.Encode(answer) != nil {
			return
		}
	}
}
