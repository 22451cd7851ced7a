// Package agent knows how to start a coding agent and how to read its output:
// the command line, the environment, the MCP configuration and the output
// format. It starts no process itself, so everything about one client is in one
// place and can be tested on its own.
//
// A [Profile] is one [agents.NAME] table of a manifest, merged with the
// built-in that it extends. [Profile.Launch] turns it and a [Task] into what a
// process needs. [Profile.Outcome] reads the recorded output of that process.
//
// # The contract
//
//   - Secrets (the actor's token and its session) are passed only in the
//     environment. They are in no argument, which every user of the machine
//     could read, and in no file. Configurations refer to the variables, each in
//     its client's syntax.
//   - A prompt is passed by stdin if the client documents that.
//   - Of Leasehold's tools, an agent may use exactly those of its task, without
//     asking. Its own tools depend on the client's configuration and on args.
//   - A tool call may take as long as Leasehold lets it wait, and longer.
//   - Reading an output takes bounded memory, however long the output is.
//
// Not chosen: one configuration for all clients in a format of our own,
// translated for each. Clients differ in what can be configured, and users who
// read a client's documentation should find its terms here.
package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Profile describes how to run one kind of agent. A zero field means that of
// the built-in.
type Profile struct {
	Extends string            `toml:"extends" enum:"claude|codex|gemini|opencode|command" doc:"the built-in profile that this one changes; by default the one of the same name, or else command"`
	Command []string          `toml:"command" doc:"the program and its first arguments; a program with a / in it is relative to the manifest's directory, any other is found in the PATH; the built-ins have one, and command needs one"`
	Args    []string          `toml:"args" doc:"more arguments, after those of the profile"`
	Env     map[string]string `toml:"env" doc:"environment variables, which override those of leasehold dispatch; names that begin with LEASEHOLD_ are refused"`
	Model   string            `toml:"model" doc:"model, as the client names it, if the task names none; for command, {model} is replaced by it"`
	Prompt  string            `toml:"prompt" enum:"stdin|argument" doc:"how the agent gets its prompt; default: where its command has {prompt}, else on stdin"`
	Result  string            `toml:"result" doc:"where the result is, if the agent reported none: output (the end of what it printed), or a JSON pointer like /answer/text into the last JSON object that it printed; by default as the client documents it, and for command output"`
	Cost    string            `toml:"cost" doc:"where the cost in dollars is: a JSON pointer as above; by default as the client documents it, and for command nowhere"`
}

// The built-in profiles.
const (
	Claude   = "claude"
	Codex    = "codex"
	Gemini   = "gemini"
	OpenCode = "opencode"
	Command  = "command"
)

// How a prompt gets to its agent.
const (
	stdin    = "stdin"
	argument = "argument"
)

// output is the value of Result for the end of the output.
const output = "output"

// A client is the part of a built-in profile that a manifest cannot express.
type client struct {
	command []string
	model   bool // driven by a model, so that its prompt is extended
	allows  bool // can be told which of its own tools it may use

	// configure returns what tells the client about Leasehold. Its flags go
	// before the profile's args.
	configure func(p Profile, t Task) (configuration, error)

	// read reads the output in the client's own format.
	read func(*lines) Outcome

	// asArgument returns the last arguments, which pass the prompt.
	asArgument func(prompt string) []string
}

// A configuration is what one launch of a client needs.
type configuration struct {
	flags []string
	last  []string          // after the profile's args, if the prompt is passed by stdin
	env   map[string]string // defaults, which the profile overrides
	set   map[string]string // overrides the profile and the task
	drop  []string          // variables that the process must not inherit
	file  string            // for {mcp_config}; "": the client takes no file
}

var clients = map[string]client{
	Claude:   {command: []string{"claude"}, model: true, allows: true, configure: configureClaude, read: readClaude, asArgument: afterDashes},
	Codex:    {command: []string{"codex", "exec"}, model: true, configure: configureCodex, read: readCodex, asArgument: afterDashes},
	Gemini:   {command: []string{"gemini"}, model: true, allows: true, configure: configureGemini, read: readGemini, asArgument: func(prompt string) []string { return []string{"--prompt=" + prompt} }},
	OpenCode: {command: []string{"opencode", "run"}, model: true, allows: true, configure: configureOpenCode, read: readOpenCode, asArgument: afterDashes},
	Command:  {allows: true, configure: configureCommand, asArgument: func(prompt string) []string { return []string{prompt} }},
}

func afterDashes(prompt string) []string { return []string{"--", prompt} }

// BuiltIns returns the names of the built-in profiles, in the order of the
// book.
func BuiltIns() []string { return []string{Claude, Codex, Gemini, OpenCode, Command} }

// BuiltIn returns the built-in profile of that name, if there is one.
func BuiltIn(name string) (Profile, bool) {
	if _, ok := clients[name]; !ok {
		return Profile{}, false
	}
	return Profile{Extends: name}.Over(name), true
}

// Over merges p, which a manifest has under name, with the built-in that it
// extends.
func (p Profile) Over(name string) Profile {
	if p.Extends == "" {
		p.Extends = Command
		if _, ok := clients[name]; ok {
			p.Extends = name
		}
	}
	if len(p.Command) == 0 {
		p.Command = slices.Clone(clients[p.Extends].command)
	}
	if p.Prompt == "" {
		p.Prompt = stdin
		if p.mentions("{prompt}") {
			p.Prompt = "" // the placeholder says where it goes
		}
	}
	p.Env = maps.Clone(p.Env)
	return p
}

// client returns the built-in that the profile extends, by default that of
// commands.
func (p Profile) client() client {
	if c, ok := clients[p.Extends]; ok {
		return c
	}
	return clients[Command]
}

// mentions reports whether the profile contains a placeholder.
func (p Profile) mentions(placeholder string) bool {
	in := func(s string) bool { return strings.Contains(s, placeholder) }
	return slices.ContainsFunc(p.Command, in) || slices.ContainsFunc(p.Args, in) || slices.ContainsFunc(slices.Collect(maps.Values(p.Env)), in)
}

// LongestWithPrompt returns the length of the longest argument, or variable with its
// name, that has the task's prompt; 0 if the agent gets it on stdin. A process takes
// [MaxArgument] bytes.
func (p Profile) LongestWithPrompt(t Task) (longest int) {
	c := p.client()
	if c.model {
		t.Resumed = true // the prompt must also fit if the run is resumed
		t.Prompt = t.toldPrompt()
	}
	var texts []string
	if p.Prompt == argument {
		texts = c.asArgument(t.Prompt)
	}
	fill := t.placeholders("")
	for _, s := range slices.Concat(p.Command, p.Args) {
		if strings.Contains(s, "{prompt}") {
			texts = append(texts, fill.fill(s))
		}
	}
	for name, value := range p.Env {
		if strings.Contains(value, "{prompt}") {
			texts = append(texts, name+"="+fill.fill(value))
		}
	}
	for _, s := range texts {
		longest = max(longest, len(s))
	}
	return longest
}

// A Fault is an error in one field of a profile.
type Fault struct {
	Field string // the key in the table
	Text  string // what is wrong, and what to do
}

// Faults returns the errors that would keep every process from being launched.
// It does not check whether the program exists.
func (p Profile) Faults() (faults []Fault) {
	say := func(field, format string, args ...any) {
		faults = append(faults, Fault{field, fmt.Sprintf(format, args...)})
	}
	if _, ok := clients[p.Extends]; !ok {
		say("extends", "%q is no built-in profile: it is one of %s", p.Extends, strings.Join(BuiltIns(), ", "))
	}
	if len(p.Command) == 0 || p.Command[0] == "" {
		say("command", `must name a program, as in command = ["./agent.sh"]`)
	}
	if slices.ContainsFunc(p.Command, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
		say("command", "has a zero byte, which no process can be given")
	}
	for field, args := range map[string][]string{"command": p.Command, "args": p.Args} {
		if slices.ContainsFunc(args, func(arg string) bool { return len(arg) > MaxArgument }) {
			say(field, "has more than %d bytes in one argument, which no process can be given", MaxArgument)
		}
	}
	if p.Prompt != "" && p.mentions("{prompt}") {
		say("prompt", "is %q, and the profile has {prompt} as well: keep one of them", p.Prompt)
	}
	if p.mentions("{mcp_config}") && p.Extends == Codex {
		say("extends", "codex takes its MCP configuration as flags, which the profile makes: remove {mcp_config}")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		switch {
		case strings.HasPrefix(name, ours):
			say("env", "%s is set by leasehold itself: choose another name", name)
		case name == "" || strings.ContainsAny(name, "=\x00"):
			say("env", "%q cannot be the name of a variable", name)
		case strings.Contains(p.Env[name], "\x00"):
			say("env", "%s has a zero byte, which no process can be given", name)
		case len(name)+len("=")+len(p.Env[name]) > MaxArgument:
			say("env", "%s is longer than a process takes (%d bytes with its name)", name, MaxArgument)
		}
	}
	if p.Result != "" && p.Result != output && !isPointer(p.Result) {
		say("result", `%q must be "output" or a JSON pointer, which begins with /`, p.Result)
	}
	if p.Cost != "" && !isPointer(p.Cost) {
		say("cost", "%q must be a JSON pointer, which begins with /", p.Cost)
	}
	return faults
}
