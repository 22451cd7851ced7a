// Package agent knows how to start a coding agent, and how to read what it has
// said: its command line, its environment, its MCP configuration, its output.
// It starts nothing itself and imports nothing of the project, so that what a
// client wants to be told is written in one place and can be tested alone.
//
// A [Profile] is one [agents.NAME] table of a manifest over the built-in that
// it extends. [Profile.Launch] makes of it and of a [Task] what a process needs;
// [Profile.Outcome] reads the recorded output of that process.
//
// # The contract
//
//   - Secrets (the actor's token and its session) go by environment alone: they
//     are in no argument, where every user of the machine could read them, and
//     in no file. Configurations name the variables, each in its client's way.
//   - A prompt goes by stdin where the client documents it.
//   - Of Leasehold's tools, an agent is allowed exactly those of its task, and
//     is not asked about them. What else it may do is the client's own
//     configuration, and what args add to it.
//   - A call of a tool may take as long as Leasehold lets it wait, and longer.
//   - Reading an output takes bounded memory whatever the agent has printed.
//
// Not chosen: one configuration for all clients in a format of our own, with a
// translation for each. They differ in what they can say, and a user who reads
// a client's documentation shall find its words here.
package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Profile says how to run one kind of agent. The zero value of a field means
// that of the built-in.
type Profile struct {
	Extends string            `toml:"extends" enum:"claude|codex|gemini|opencode|command" doc:"the built-in profile that this one changes; by default the one of the same name, or else command"`
	Command []string          `toml:"command" doc:"the program and its first arguments; a program with a / in it is found from the manifest's directory, any other in the PATH; the built-ins bring their own, command has none"`
	Args    []string          `toml:"args" doc:"more arguments, after those that the profile makes"`
	Env     map[string]string `toml:"env" doc:"variables for the process, over those that leasehold dispatch has; names that begin with LEASEHOLD_ are taken"`
	Model   string            `toml:"model" doc:"the model, in the client's words, where the task names none; command has {model} instead"`
	Prompt  string            `toml:"prompt" enum:"stdin|argument" doc:"how the prompt gets there; by default stdin, or where {prompt} stands"`
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

// output is the result that is no pointer.
const output = "output"

// A client is what a built-in knows: what no table of a manifest could say.
type client struct {
	command []string
	model   bool // speaks with a model, and so reads more than its bare prompt
	allows  bool // can be told which of its own tools it may use

	// configure makes what tells the client of Leasehold. Flags stand before
	// the profile's args.
	configure func(p Profile, t Task) (configuration, error)

	// read reads the output in the client's own format.
	read func(*lines) Outcome

	// asArgument are the arguments that bring a prompt, and its last.
	asArgument func(prompt string) []string
}

// A configuration is what one launch of a client needs.
type configuration struct {
	flags []string
	last  []string          // after the profile's args, where the prompt comes by stdin
	env   map[string]string // under the profile's
	set   map[string]string // over the profile's and the task's
	drop  []string          // variables that the process must not inherit
	file  string            // for {mcp_config}; "" where the client takes no file
}

var clients = map[string]client{
	Claude:   {command: []string{"claude"}, model: true, allows: true, configure: configureClaude, read: readClaude, asArgument: afterDashes},
	Codex:    {command: []string{"codex", "exec"}, model: true, configure: configureCodex, read: readCodex, asArgument: afterDashes},
	Gemini:   {command: []string{"gemini"}, model: true, allows: true, configure: configureGemini, read: readGemini, asArgument: func(prompt string) []string { return []string{"--prompt=" + prompt} }},
	OpenCode: {command: []string{"opencode", "run"}, model: true, allows: true, configure: configureOpenCode, read: readOpenCode, asArgument: afterDashes},
	Command:  {allows: true, configure: configureCommand, asArgument: func(prompt string) []string { return []string{prompt} }},
}

func afterDashes(prompt string) []string { return []string{"--", prompt} }

// BuiltIns are the names of the built-in profiles, in the order of the book.
func BuiltIns() []string { return []string{Claude, Codex, Gemini, OpenCode, Command} }

// BuiltIn is the profile of that name, and whether there is one.
func BuiltIn(name string) (Profile, bool) {
	if _, ok := clients[name]; !ok {
		return Profile{}, false
	}
	return Profile{Extends: name}.Over(name), true
}

// Over is p, as the table of that name in a manifest says it, over the built-in
// that it extends.
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
			p.Prompt = "" // it stands where it is mentioned
		}
	}
	p.Env = maps.Clone(p.Env)
	return p
}

// client is what the profile extends; one that extends nothing is a command.
func (p Profile) client() client {
	if c, ok := clients[p.Extends]; ok {
		return c
	}
	return clients[Command]
}

// mentions reports whether a placeholder stands anywhere in the profile.
func (p Profile) mentions(placeholder string) bool {
	in := func(s string) bool { return strings.Contains(s, placeholder) }
	return slices.ContainsFunc(p.Command, in) || slices.ContainsFunc(p.Args, in) || slices.ContainsFunc(slices.Collect(maps.Values(p.Env)), in)
}

// A Fault is what is wrong with one field of a profile.
type Fault struct {
	Field string // as the table names it
	Text  string // what is wrong, and what to do
}

// Faults are what no process could be launched with. It looks at the profile
// alone, not at whether its program is there.
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
	if p.Prompt != "" && p.mentions("{prompt}") {
		say("prompt", "is %q, and {prompt} stands in the profile too: keep one of them", p.Prompt)
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
