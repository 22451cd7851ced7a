// Package manifest reads the file that describes how a tree of agents is run.
//
// The file is TOML. Each table is a struct, of this package or of the one that uses it,
// and the tags of the struct are its documentation: [Load] checks against them, the
// reference in the book is generated from them, and a test compares the template with
// both.
//
// # The contract
//
//   - [Load] and [Parse] report all problems at once, as [Problems]: the line
//     and column, what is wrong, what is allowed and what to do. Nothing is
//     ignored; an unknown key is refused.
//   - In the Manifest that they return all defaults are filled in, paths are
//     absolute, agents are merged with their built-ins, and the programs of the
//     agents exist.
//   - Durations are seconds, with fractions, and their keys end in _secs. Zero
//     means no limit only where the reference says so.
//
// Not chosen: letting the TOML package decode into the structs. It stops at the
// first value of a wrong type, and cannot give the position of a value that is
// out of range. So it only parses, and one walk over the result decodes, checks
// and records positions.
package manifest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/work"
)

// A Manifest describes how to execute a run.
type Manifest struct {
	Name string // of the file
	Dir  string // absolute; paths in the file are relative to it
	Text []byte // the file as it was read

	Run     Run                      `toml:"run" doc:"the run as a whole"`
	Agents  map[string]agent.Profile `toml:"agents" doc:"an agent that root, sublead, worker and the spawn tools can name; claude, codex, gemini and opencode need no table if root, sublead or worker names them, otherwise an empty one"`
	Root    Root                     `toml:"root" doc:"the agent that is started first, and leads the others"`
	Sublead work.Sublead             `toml:"sublead" doc:"defaults for spawn_sublead"`
	Worker  work.Worker              `toml:"worker" doc:"defaults for spawn_worker"`
	Leases  []Lease                  `toml:"leases" doc:"a lease that is known in advance: agents driven by a model are told of it, and nobody holds it yet"`
}

// Run is the table [run].
type Run struct {
	Name string `toml:"name" doc:"name of the run, which no live run may have; default: the name of the file, without .toml"`
	work.Limits
	TimeoutSecs    float64    `toml:"timeout_secs" min:"0" max:"2592000" doc:"the run is stopped after this long; 0: no limit"`
	DrainGraceSecs float64    `toml:"drain_grace_secs" min:"0" max:"3600" default:"10" doc:"how long agents may go on after an interrupt before they get SIGTERM, and any agent between SIGTERM and SIGKILL"`
	Store          work.Store `toml:"store" doc:"the store of every layer"`
}

// Settings returns what the daemon must know of the run as a whole.
func (m *Manifest) Settings() work.Settings {
	return work.Settings{Limits: m.Run.Limits, Store: m.Run.Store, Sublead: m.Sublead, Worker: m.Worker}
}

// Root is the table [root]. After Load, Prompt has the text of PromptFile if
// that was given.
type Root struct {
	Agent       string            `toml:"agent" required:"true" doc:"which agent: a table of agents, or a built-in"`
	Name        string            `toml:"name" default:"lead" doc:"its name; its path is root whatever its name"`
	Prompt      string            `toml:"prompt" max:"262144" doc:"its prompt; give this or prompt_file"`
	PromptFile  string            `toml:"prompt_file" doc:"a file with the prompt"`
	Model       string            `toml:"model" doc:"model, as its client names it; default: the agent's"`
	Directory   string            `toml:"directory" doc:"where it runs; default: the manifest's directory"`
	TimeoutSecs float64           `toml:"timeout_secs" min:"0" max:"2592000" doc:"it is stopped after this long; 0: no limit"`
	Env         map[string]string `toml:"env" doc:"environment variables, which override those of the agent"`
	work.Placement
}

// Order returns the order for the root actor.
func (r Root) Order() work.Order {
	return work.Order{
		Name: r.Name, Agent: r.Agent, Model: r.Model, Prompt: r.Prompt, Directory: r.Directory,
		Env: r.Env, TimeoutSecs: r.TimeoutSecs, Placement: r.Placement,
	}
}

// Lease is an element of [[leases]].
type Lease struct {
	Scope   string `toml:"scope" required:"true" enum:"run|layer" doc:"of the whole run, or of each layer"`
	Key     string `toml:"key" required:"true" max:"512" doc:"its key (run) or name (layer)"`
	Purpose string `toml:"purpose" required:"true" max:"1000" doc:"what to hold it for"`
}

// Load reads and checks a manifest. Problems in it are returned as [Problems].
func Load(path string) (*Manifest, error) {
	text, more, err := readAtMost(path, maxManifest)
	if more {
		err = fmt.Errorf("%s has more than %d MiB, which no manifest needs", path, maxManifest>>20)
	}
	if err != nil {
		return nil, err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, text, filepath.Dir(whole))
}

// maxManifest limits the size of a manifest.
const maxManifest = 4 << 20

// readAtMost reads a file. more says that the file has more than max bytes, and so may
// have no end at all.
func readAtMost(path string, max int) (text []byte, more bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, int64(max)+1))
	return text, len(text) > max, err
}

// byteOrderMark is what some editors write before a text in UTF-8.
const byteOrderMark = "\uFEFF"

// Parse checks the text of a manifest that is called name and is in dir.
func Parse(name string, text []byte, dir string) (*Manifest, error) {
	m := &Manifest{Name: name, Dir: dir, Text: text}
	doc, err := read(name, bytes.TrimPrefix(text, []byte(byteOrderMark)))
	if err != nil {
		return nil, err
	}
	m.decode(doc)
	m.complete(doc)
	if len(doc.problems) > 0 {
		return nil, doc.sorted()
	}
	return m, nil
}

// Notes returns what every agent that is driven by a model is told in addition
// to its prompt: the leases that are known in advance. It is empty if there are
// none.
func (m *Manifest) Notes() string {
	if len(m.Leases) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Leases that are known in advance; take one before you touch what it guards:\n")
	for _, l := range m.Leases {
		tool, argument := "run_lease_acquire", "key"
		if l.Scope == "layer" {
			tool, argument = "lease_acquire", "name"
		}
		fmt.Fprintf(&b, "- %s with %s %q: %s\n", tool, argument, l.Key, l.Purpose)
	}
	return b.String()
}
