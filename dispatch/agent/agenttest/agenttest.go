// Package agenttest has stand-ins for the coding agents that dispatch/agent
// starts: claude, codex, gemini and opencode, each the test binary under
// another name. A stand-in reads what it was given as the real client does,
// flags, environment and configuration, and refuses what that would not take or
// would not do without a person. Then it really starts the MCP server that it
// was told of, does what its prompt says, and prints its answer in the client's
// own format.
//
// What a prompt can say, a line each; other lines are for people:
//
//	call TOOL {JSON}   calls a tool; "$lease_id" in the arguments is that field
//	                   of the last answer that had it
//	say TEXT           a part of its answer; without any, what the last call said
//	cost USD           what it reports to have spent; 0.01 if it is not said
//	sleep SECONDS      does nothing
//	sh COMMAND         runs a command, as a tool of the client's own would
//	exit CODE          ends at once and prints nothing, as one that crashes
//
// A stand-in that was given something wrong ends with [Wrong] and says what; one
// that finds a secret of its own in the arguments of any process ends with
// [Leaked].
//
// A test binary becomes one by calling [Main] first in its TestMain, and
// [Install] where it wants them in a PATH.
package agenttest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// How a stand-in ends that is not content.
const (
	Wrong  = 96
	Leaked = 97
)

// RecordDir names the variable that says where stand-ins write what they were
// given, as [Given] in JSON, in a file of its own each. It may be unset.
const RecordDir = "AGENTTEST_RECORD"

// A Given is what a stand-in was given.
type Given struct {
	Client  string
	Argv    []string
	Env     map[string]string // all of it, with the secrets
	Dir     string
	Prompt  string
	Model   string
	Budget  string
	Command []string // of the MCP server
	Server  map[string]string
	Allowed []string // Leasehold's tools that it may call unasked
	Timeout float64  // seconds that it would give a call
	Listed  []string // tools that the server has
	Answer  string
}

// A fake is what is special to a client.
type fake struct {
	// given reads what the client was given into g, which has all that needs
	// no knowledge of it.
	given func(g *Given, args []string) error
	// print prints the answer in the client's format.
	print func(w io.Writer, g Given, cost float64) error
}

var fakes = map[string]fake{
	"claude": {claudeGiven, claudePrint}, "codex": {codexGiven, codexPrint},
	"gemini": {geminiGiven, geminiPrint}, "opencode": {opencodeGiven, opencodePrint},
}

// Main becomes a stand-in, and does not return, if the binary is called as one.
func Main() {
	name := filepath.Base(os.Args[0])
	f, ok := fakes[name]
	if !ok {
		return
	}
	code, err := f.run(name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "agenttest: %s: %v\n", name, err)
	}
	os.Exit(code)
}

// Install puts all four into dir, under the names of the real ones.
func Install(t testing.TB, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name := range fakes {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
