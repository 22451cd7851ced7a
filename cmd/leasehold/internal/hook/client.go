package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A client is an MCP client whose hooks run this command.
type client struct {
	name  string // on the command line
	guest string // begins its name in a run where it has no session

	read func(stdin []byte) (event, error)

	// answer writes a verdict in the client's format.
	answer func(out io.Writer, e event, v verdict) error

	// tells lists the events at which a note reaches the client's model.
	tells []kind

	// pid is the variable with the client's process id; "": the parent is the client.
	pid string

	// home is the variable with the directory that the client was started in; "": the
	// directory of an event is always that one.
	home string
}

var clients = []client{claude, codex, gemini, opencode, copilot, qwen, kimi, crush}

// An event is what a client reports to its hook.
type event struct {
	kind  kind
	name  string // as the client calls it
	dir   string // where the agent is, from which it names files
	home  string // where the client was started, which decides the run of its session
	party string // the agent that acts; "": the client's main agent
	main  bool   // party is the main agent, for clients that name that one too

	compacted bool // the conversation goes on, and its model has forgotten much of it
	resumed   bool // the conversation goes on, and its session may be another
	unheard   bool // a note would not reach the model, though it does at other events of this kind

	// For the use of a tool:
	use       string   // its id
	files     []string // that the tool will write, as the client names them
	shell     bool     // the tool runs a command, which may write any file
	ours      bool     // the tool is leasehold's
	delegates bool     // the tool gives work to sub-agents or waits for one

	input map[string]any // what the tool is to be called with instead, all or some of it; nil: as it is
}

// A kind says when a hook runs.
type kind string

const (
	other      kind = ""
	begin      kind = "begin"       // a conversation begins, goes on, or was compacted
	before     kind = "before"      // the use of a tool
	after      kind = "after"       // the use of a tool
	stop       kind = "stop"        // the agent is about to end its turn
	partyEnd   kind = "party end"   // of a sub-agent
	sessionEnd kind = "session end" // the client ends
)

// A verdict is the hook's answer to a client.
type verdict struct {
	refuse string // why the write must not happen; "": it may
	note   string // for the model, and for its user; at a stop, why to go on
}

// readJSON reads the object that a client writes to a hook's stdin. It ignores unknown
// fields, because clients change.
func readJSON(stdin []byte, v any) error {
	err := json.Unmarshal(stdin, v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		name, must := "it", "an object"
		if wrong.Field != "" {
			name, must = wrong.Field, "a string"
		}
		return fmt.Errorf("stdin is not the JSON of a hook: %s is of type %s and must be %s", name, wrong.Value, must)
	}
	if err != nil {
		return fmt.Errorf("stdin is not the JSON of a hook: %w", err)
	}
	return nil
}

// textOf returns the text of that name in the input of a tool. It is "" if there is none:
// a tool that we do not know may use the name for something else, or have another input.
func textOf(input any, name string) string {
	fields, _ := input.(map[string]any)
	text, _ := fields[name].(string)
	return text
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// process returns the id of the client's process, or 0 if it is not known. A hook's
// parent is the client, or a shell that the client started for the hook. A hook whose
// client is gone has an init as its parent.
func (c client) process() int {
	if pid, _ := strconv.Atoi(os.Getenv(c.pid)); pid > 0 {
		return pid
	}
	pid := os.Getppid()
	for slices.Contains(shells, process.Name(pid)) {
		pid = process.Find(pid).Parent
	}
	if process.Init(pid) {
		return 0
	}
	return pid
}

// shells are the names of programs that may run a hook for its client.
var shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"}
