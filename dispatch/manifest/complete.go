package manifest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// complete fills in values that depend on others, and checks what no tag can
// express.
func (m *Manifest) complete(d *document) {
	m.completeRun(d)
	m.completeRoot(d)
	m.Sublead.Agent = cmp.Or(m.Sublead.Agent, m.Root.Agent)
	m.Worker.Agent = cmp.Or(m.Worker.Agent, m.Root.Agent)
	m.completeAgents(d)
	m.checkPrompt(d)
	m.checkBudgets(d)
	m.checkLeases(d)
	m.checkPlaces(d)
	m.checkOrder(d)
	if m.Worker.Worktree && !m.Worker.Elsewhere() && !d.wrong("root.directory") {
		switch {
		case !inRepository(m.Root.Directory):
			d.say("worker.worktree", "needs a git repository, and %s is in none: git init there, or leave it out", m.Root.Directory)
		case process.WithoutCommit(context.Background(), m.Root.Directory):
			d.say("worker.worktree", "needs a commit to begin at, and the repository of %s has none: make one first, or leave it out", m.Root.Directory)
		}
	}
}

// checkPlaces refuses what is no name of a machine or label, and both at once.
func (m *Manifest) checkPlaces(d *document) {
	for table, p := range map[string]work.Placement{"root": m.Root.Placement, "sublead": m.Sublead.Placement, "worker": m.Worker.Placement} {
		var wrong *registry.ArgumentError
		if errors.As(p.Check(), &wrong) && !d.wrong(join(table, wrong.Argument)) {
			d.say(join(table, wrong.Argument), "%s", wrong.Problem)
		}
	}
}

// checkOrder reports what the daemon would refuse of the order for the root.
func (m *Manifest) checkOrder(d *document) {
	if d.wrong("agents") || slices.ContainsFunc(d.problems, func(p Problem) bool { return strings.HasPrefix(p.Key, "root.") }) {
		return // this one may be the same, or follow from it
	}
	var wrong *registry.ArgumentError
	if errors.As(m.Root.Order().Check(slices.Sorted(maps.Keys(m.Agents))), &wrong) {
		d.say(join("root", wrong.Argument), "%s", wrong.Problem)
	}
}

// onlyElsewhere reports whether every agent that the manifest has use the profile runs
// on another machine: its program need not be on this one.
func (m *Manifest) onlyElsewhere(name string) bool {
	used := false
	for _, use := range []struct {
		agent string
		place work.Placement
	}{{m.Root.Agent, m.Root.Placement}, {m.Sublead.Agent, m.Sublead.Placement}, {m.Worker.Agent, m.Worker.Placement}} {
		if use.agent == name {
			used = true
			if !use.place.Elsewhere() {
				return false
			}
		}
	}
	return used
}

func (m *Manifest) completeRun(d *document) {
	if m.Run.Name == "" {
		m.Run.Name = strings.TrimSuffix(filepath.Base(m.Name), ".toml")
	}
	d.name("run.name", m.Run.Name, dispatch.CheckRun)
	if s := m.Run.Store; s.MaxValueBytes > s.MaxBytes && !d.wrong("run.store.max_bytes") {
		d.say("run.store.max_value_bytes", "is %d, and all values together may have %d: no such value could be stored", s.MaxValueBytes, s.MaxBytes)
	}
}

// name checks the name of an actor or a run with the daemon's own rule.
func (d *document) name(key, name string, check func(string) error) {
	var wrong *registry.ArgumentError
	if err := check(name); errors.As(err, &wrong) && !d.wrong(key) {
		d.say(key, "is %q, and %s", name, wrong.Problem)
	}
}

func (m *Manifest) completeRoot(d *document) {
	d.name("root.name", m.Root.Name, dispatch.CheckName)
	m.Root.Directory = m.path(cmp.Or(m.Root.Directory, "."))
	switch info, err := os.Stat(m.Root.Directory); {
	case m.Root.Elsewhere(): // it is there that it must be
	case err != nil:
		d.say("root.directory", "is not there: mkdir -p %s, or name another", m.Root.Directory)
	case !info.IsDir():
		d.say("root.directory", "is not a directory: %s", m.Root.Directory)
	}
	switch file := m.Root.PromptFile; {
	case d.wrong("root.prompt") || d.wrong("root.prompt_file"):
	case file != "" && m.Root.Prompt != "":
		d.say("root.prompt_file", "is given, and prompt as well: keep one of them")
	case file != "":
		m.readPrompt(d)
	case strings.TrimSpace(m.Root.Prompt) == "":
		d.say("root.prompt", "must be given, or prompt_file: what the root is told to do")
	}
	d.variables("root.env", m.Root.Env)
}

func (m *Manifest) readPrompt(d *document) {
	const key = "root.prompt_file"
	file := m.path(m.Root.PromptFile)
	text, more, err := readAtMost(file, work.MaxPrompt+len(byteOrderMark))
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(key, "is not there: write what the root is to do into %s, or name another", file)
	case err != nil:
		d.say(key, "cannot be read: %v", err)
	case strings.TrimSpace(string(text)) == "":
		d.say(key, "is empty: write what the root is to do into %s", file)
	case more || len(text) > work.MaxPrompt:
		d.say(key, "has more than %d bytes: write what the root is to do in fewer into %s", work.MaxPrompt, file)
	case !utf8.Valid(text) || strings.ContainsRune(string(text), 0):
		d.say(key, "is no text: %s must be UTF-8", file)
	default:
		m.Root.Prompt = string(text)
	}
	m.Root.PromptFile = file
}

// checkPrompt reports a prompt that is too long for the way in which the root's agent
// gets it.
func (m *Manifest) checkPrompt(d *document) {
	key := "root.prompt"
	if m.Root.PromptFile != "" {
		key = "root.prompt_file"
	}
	p, known := m.Agents[m.Root.Agent]
	if !known || d.wrong(key) {
		return
	}
	root := agent.Task{Run: m.Run.Name, Path: dispatch.RootPath, Name: dispatch.RootPath, Prompt: m.Root.Prompt, Directory: m.Root.Directory, Model: m.Root.Model, Notes: m.Notes()}
	if n := p.LongestWithPrompt(root); n > agent.MaxArgument {
		d.say(key, "makes an argument or variable of %d bytes for agent %q, and a process takes %d: pass it by stdin, or name a file in it", n, m.Root.Agent, agent.MaxArgument)
	}
}

// path resolves a path of the manifest.
func (m *Manifest) path(p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(m.Dir, p)
}

func (d *document) variables(key string, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		switch {
		case strings.HasPrefix(name, "LEASEHOLD_"):
			d.say(join(key, name), "is set by leasehold itself: choose another name")
		case name == "" || strings.ContainsAny(name, "=\x00"):
			d.say(join(key, name), "cannot be the name of a variable")
		case strings.Contains(env[name], "\x00"):
			d.say(join(key, name), "has a zero byte, which no process can be given")
		}
	}
}

// completeAgents merges the agents with their built-ins, adds built-ins that
// are used without a table, and looks for the programs of all of them.
func (m *Manifest) completeAgents(d *document) {
	agents := make(map[string]agent.Profile)
	for name, p := range m.Agents {
		d.name(join("agents", name), name, layer.CheckName)
		agents[name] = p.Over(name)
	}
	m.Agents = agents
	uses := []struct{ key, name string }{
		{"root.agent", m.Root.Agent}, {"sublead.agent", m.Sublead.Agent}, {"worker.agent", m.Worker.Agent},
	}
	for _, use := range uses {
		if _, known := agents[use.name]; known || use.name == "" || use.key != "root.agent" && !d.has(use.key) {
			continue
		}
		p, ok := agent.BuiltIn(use.name)
		switch {
		case !ok && d.wrong("agents"): // it may be meant to be there
		case !ok:
			d.say(use.key, "is %q, which is no agent: %s", use.name, m.instead(use.name))
		case use.name == agent.Command:
			d.say(use.key, `is %q, which needs a table that says what to run: [agents.mine] with command = ["./agent.sh"], and agent = "mine" here`, use.name)
		default:
			agents[use.name] = p
			d.lookFor(m, use.key, use.name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		if key := join("agents", name); d.has(key) {
			d.profile(m, key, name)
		}
	}
}

// instead suggests what may have been meant by the name of an agent.
func (m *Manifest) instead(name string) string {
	known := slices.Concat(slices.Sorted(maps.Keys(m.Agents)), []string{agent.Claude, agent.Codex, agent.Gemini, agent.OpenCode})
	if meant := nearest(name, known); meant != "" {
		return fmt.Sprintf("did you mean %s?", meant)
	}
	return fmt.Sprintf("use one of %s, or add [agents.%s]", strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", "), name)
}

// profile checks one agent that has a table.
func (d *document) profile(m *Manifest, key, name string) {
	if d.wrong(key) || d.wrong(join(key, "extends")) {
		return // other problems may be a consequence of this one
	}
	p := m.Agents[name]
	for _, f := range p.Faults() {
		if at := join(key, f.Field); !d.wrong(at) {
			d.say(at, "%s", f.Text)
		}
	}
	if len(p.Command) == 0 || p.Command[0] == "" || strings.Contains(p.Command[0], "{") {
		return // the program is known only at launch
	}
	if program := p.Command[0]; strings.Contains(program, "/") {
		p.Command = slices.Clone(p.Command)
		p.Command[0] = m.path(program)
		m.Agents[name] = p
	}
	d.lookFor(m, join(key, "command"), name)
}

// lookFor reports a problem if an agent's program does not exist.
func (d *document) lookFor(m *Manifest, key, name string) {
	if _, err := m.Agents[name].Find(m.Dir); err != nil && !m.onlyElsewhere(name) && !d.wrong(key) {
		d.say(key, "cannot be run: %v", err)
	}
}

// checkBudgets reports default budgets that no spawn could get.
func (m *Manifest) checkBudgets(d *document) {
	all := m.Run.BudgetUSD
	for key, budget := range map[string]float64{"sublead.budget_usd": m.Sublead.BudgetUSD, "worker.budget_usd": m.Worker.BudgetUSD} {
		if all > 0 && budget > all {
			d.say(key, "is %s, and the whole run has %s: none could be spawned", plain(budget), plain(all))
		}
	}
}

// checkLeases reports leases that no agent could take.
func (m *Manifest) checkLeases(d *document) {
	seen := make(map[Lease]bool)
	for i, l := range m.Leases {
		key := element("leases", i) + ".key"
		if d.wrong(key) || l.Key == "" {
			continue
		}
		if problem := unusable(l); problem != "" {
			d.say(key, "is %q, and %s", l.Key, problem)
		}
		if one := (Lease{Scope: l.Scope, Key: l.Key}); seen[one] {
			d.say(key, "is %q, as that of a lease above: keep one of them", l.Key)
		} else {
			seen[one] = true
		}
	}
}

// unusable returns the reason why no agent could take a lease of that key; ""
// if one could.
func unusable(l Lease) string {
	if l.Scope == "layer" {
		var wrong *registry.ArgumentError
		if _, err := kvstore.LeaseName(l.Key); errors.As(err, &wrong) {
			return wrong.Problem
		}
		return ""
	}
	return registry.Unseen(l.Key)
}

// inRepository reports whether a directory is in a git repository.
func inRepository(dir string) bool {
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false
		}
		dir = up
	}
}
