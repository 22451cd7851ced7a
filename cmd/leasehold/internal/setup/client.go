package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// A client is an MCP client that setup knows.
type client struct {
	name  string // on the command line
	title string

	// found reports whether it is on this machine.
	found func(m machine) bool

	// files are what it reads, for the user or for the project.
	files func(m machine, project bool) []file

	// note says what remains to be known, or "".
	note func(project bool) string
}

// A file is one that a client reads, and what must be in it.
type file struct {
	path string
	text language
	want config

	hook bool // it is git's hook, and the rest is not needed

	// alternative, where want depends on what is in the file, chooses.
	alternative func(text []byte) config
}

// clients are all that setup knows, git among them, in the order in which they are
// shown.
var clients = []client{claude, codex, gemini, opencode, copilot, cursor, vscode, git}

// A machine is where setup looks and writes.
type machine struct {
	home    string
	top     string // of the project
	command string // that starts leasehold
	getenv  func(string) string
	look    func(program string) (string, error)
}

// dir is a directory that a variable names, or one below home.
func (m machine) dir(variable string, below ...string) string {
	if dir := m.getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(append([]string{m.home}, below...)...)
}

// has reports whether a program is in the PATH or a directory is there.
func (m machine) has(program string, dirs ...string) bool {
	if _, err := m.look(program); err == nil {
		return true
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

// thisMachine is the one that the command runs on.
func thisMachine(top string, project bool) (machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return machine{}, err
	}
	m := machine{home: home, top: top, getenv: os.Getenv, look: exec.LookPath, command: "leasehold"}
	if _, err := exec.LookPath(m.command); err == nil || project { // what is shared has no path of this machine
		return m, nil
	}
	m.command, err = os.Executable()
	return m, err
}

// The times that a call and a start may take. A call may wait for 50 s.
const (
	callSeconds  = 600
	startSeconds = 30
	leastCall    = 55 // seconds, that will do where somebody has set it
)

// launch is what every client needs to start the server.
func launch(m machine, args ...string) []setting {
	return []setting{
		{name: "command", value: m.command, any: true, launch: true},
		{name: "args", value: append([]string{"mcp"}, args...), any: true, launch: true},
	}
}

// callLimit is how long a call may take, in thousandths of a second.
var callLimit = setting{name: "timeout", value: callSeconds * 1000, least: leastCall * 1000}

// instructions is a file for models.
func instructions(path ...string) file {
	return file{path: filepath.Join(path...), text: markedText{}, want: config{block: protocol}}
}

func onMac() bool { return runtime.GOOS == "darwin" }
