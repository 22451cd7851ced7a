package hook

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A client is one whose hooks run this command.
type client struct {
	name  string // on the command line
	guest string // what it is called in a run that it has no session in

	read func(stdin []byte) (event, error)

	// answer says a verdict in the client's words.
	answer func(out io.Writer, e event, v verdict) error

	// tells are the events at which a note reaches the client's model.
	tells []kind

	// pid is the variable that has the client's process; "": it is the parent.
	pid string
}

var clients = []client{claude, codex, gemini, opencode}

// An event is what a client says of itself.
type event struct {
	kind  kind
	name  string // as the client calls it
	dir   string // where the client works
	party string // the agent that does it; "": the client's main one
	main  bool   // it has a name, and is nobody's sub-agent

	// Of a use of a tool.
	use       string   // its id
	files     []string // that it will write, as the client names them
	shell     bool     // it runs a command, which may write anything
	ours      bool     // the tool is leasehold's
	delegates bool     // it has a sub-agent do something, and waits
}

// A kind says when a hook runs.
type kind string

const (
	other      kind = ""
	before     kind = "before"      // a use of a tool
	after      kind = "after"       // one
	stop       kind = "stop"        // the agent is about to end its turn
	partyEnd   kind = "party end"   // of a sub-agent
	sessionEnd kind = "session end" // of all that the client does
)

// A verdict is what is told to a client.
type verdict struct {
	refuse string // why the write must not happen; "": it may
	note   string // for the model, and for its user; at a stop, why to go on
}

// readJSON reads the object that most clients write to a hook's stdin. What it
// does not know it leaves, for clients change.
func readJSON(stdin []byte, v any) error {
	if err := json.Unmarshal(stdin, v); err != nil {
		return fmt.Errorf("stdin is not the JSON of a hook: %w", err)
	}
	return nil
}

func writeJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// process is the client's process. A hook's parent is the client, or a shell that
// the client has started for it.
func (c client) process() int {
	if pid, err := strconv.Atoi(os.Getenv(c.pid)); c.pid != "" && err == nil && pid > 1 {
		return pid
	}
	pid := os.Getppid()
	for n := 0; n < 3 && slices.Contains(shells, process.Name(pid)); n++ {
		pid = process.Find(pid).Parent
	}
	if pid <= 1 {
		return 0
	}
	return pid
}

// A shell runs commands for whoever typed or sent them.
var shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"}

// An init becomes the parent of processes that have lost theirs.
var inits = []string{"init", "systemd", "launchd", "runit", "s6-svscan", "tini", "dumb-init", "docker-init", "catatonit", "conmon"}
