package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// A Task is one piece of work for one agent, with everything that its process
// needs.
type Task struct {
	Run, RunID, ActorID string
	Name, Path, Role    string
	Prompt              string
	Model               string // "": the profile's
	Directory           string // where the process runs
	Scratch             string // a directory for the configurations of this launch only
	RunDir              string
	Leasehold           string // the leasehold binary, by its whole path
	Socket              string // of the daemon; "": it is elsewhere
	Servers, Authority  string // then: the URLs of its servers, and the file with the certificate of their authority
	Launcher            string // a mark of the launcher that starts it
	Token, Session      string // secrets
	Life                int
	Tools               []string // Leasehold's tools for the role
	Allow               []string // the client's own tools that it may use without asking, besides those of the profile
	BudgetUSD           float64  // what it may spend; 0: no limit is passed on
	Env                 map[string]string
	Resumed             bool   // the run continues after an interruption
	Notes               string // what every agent that is driven by a model should know
}

// A Launch has what is needed to start a process. Env is its whole environment.
type Launch struct {
	Argv, Env []string
	Dir       string
	Stdin     []byte
}

// MaxArgument is the greatest length of an argument, or of a variable with its name,
// on Linux.
const MaxArgument = 128<<10 - 1

// Launch prepares the command line, the environment and the configuration of
// one process. It writes files to t.Scratch, readable by their owner only. An
// error says what is missing and what to do. Launch does not start anything.
func (p Profile) Launch(t Task) (Launch, error) {
	c := p.client()
	if t.Model == "" {
		t.Model = p.Model
	}
	if c.model {
		t.Prompt = t.toldPrompt()
	}
	if len(t.Allow) > 0 && !c.allows {
		return Launch{}, fmt.Errorf("%s takes no list of its own tools: leave tools out, or say in the profile's args what it may do", p.Extends)
	}
	conf, err := c.configure(p, t)
	if err != nil {
		return Launch{}, err
	}
	fill := t.placeholders(conf.file)
	env, err := environ(p, t, conf, fill)
	if err != nil {
		return Launch{}, err
	}
	argv := slices.Concat(fill.all(p.Command), conf.flags, fill.all(p.Args))
	l := Launch{Env: env.list(), Dir: t.Directory}
	switch p.Prompt {
	case stdin:
		argv = append(argv, conf.last...)
		// The read command of a shell consumes a newline, and fails without
		// one.
		l.Stdin = []byte(strings.TrimSuffix(t.Prompt, "\n") + "\n")
	case argument:
		argv = append(argv, c.asArgument(t.Prompt)...)
	}
	if len(argv) == 0 {
		return Launch{}, fmt.Errorf("the profile has no command: name a program in it")
	}
	if argv[0], err = env.find(argv[0], t.Directory); err != nil {
		return Launch{}, err
	}
	for _, arg := range argv {
		switch {
		case len(arg) > MaxArgument:
			return Launch{}, fmt.Errorf("an argument of %d bytes is longer than a process takes (%d): pass the prompt by stdin", len(arg), MaxArgument)
		case t.Token != "" && strings.Contains(arg, t.Token), t.Session != "" && strings.Contains(arg, t.Session):
			return Launch{}, fmt.Errorf("an argument of %s has a secret in it: name the variable that has it instead", filepath.Base(argv[0]))
		}
	}
	for _, pair := range l.Env {
		if name, _, _ := strings.Cut(pair, "="); len(pair) > MaxArgument {
			return Launch{}, fmt.Errorf("variable %s has %d bytes, and a process takes %d with its name: put what is longer in a file", name, len(pair), MaxArgument)
		}
	}
	l.Argv = argv
	return l, nil
}

// toldPrompt returns the prompt with what a model needs to know besides: who it
// is, how to stay out of the way of other agents, and whether the run was
// interrupted.
func (t Task) toldPrompt() string {
	parts := []string{strings.TrimRight(t.Prompt, "\n"), t.whoItIs() + "\n" + tools.Protocol}
	if t.Resumed {
		parts = append(parts, "This run was interrupted and goes on now: part of the work may have been done before. See what is there before you begin.")
	}
	if notes := strings.TrimSpace(t.Notes); notes != "" {
		parts = append(parts, notes)
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// whoItIs tells a model its place in the tree and how to report to its lead.
func (t Task) whoItIs() string {
	who := fmt.Sprintf("You are %s, the lead of the run %q.", t.Path, t.Run)
	if t.Path != rootPath {
		lead := rootPath
		if i := strings.LastIndex(t.Path, "→"); i >= 0 {
			lead = t.Path[:i]
		}
		who = fmt.Sprintf("You are %s, a %s of the run %q; %s started you. Before you end, report your result with actor_report.", t.Path, t.Role, t.Run, lead)
	}
	return who + " Other agents work beside you. The tools of the MCP server leasehold keep you apart:"
}

// rootPath is the path of the root of every run.
const rootPath = "root"

// write writes a configuration file that only its owner may read.
func (t Task) write(name string, text []byte) (path string, err error) {
	path = filepath.Join(t.Scratch, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, text, 0o600)
}

// A filler replaces placeholders such as {name} by their values.
type filler struct{ pairs map[string]string }

func (t Task) placeholders(mcpConfig string) filler {
	return filler{map[string]string{
		"prompt": t.Prompt, "mcp_config": mcpConfig, "name": t.Name, "directory": t.Directory,
		"path": t.Path, "run": t.Run, "model": t.Model,
	}}
}

// fill leaves unknown placeholders unchanged, and ${name}, which is for a
// shell.
func (f filler) fill(s string) string {
	var b strings.Builder
	for {
		open := strings.IndexByte(s, '{')
		if open < 0 {
			break
		}
		end := strings.IndexByte(s[open:], '}')
		if end < 0 {
			break
		}
		value, known := f.pairs[s[open+1:open+end]]
		if !known || open > 0 && s[open-1] == '$' {
			b.WriteString(s[:open+1])
			s = s[open+1:]
			continue
		}
		b.WriteString(s[:open])
		b.WriteString(value)
		s = s[open+end+1:]
	}
	b.WriteString(s)
	return b.String()
}

func (f filler) all(list []string) []string {
	filled := make([]string, len(list))
	for i, s := range list {
		filled[i] = f.fill(s)
	}
	return filled
}
