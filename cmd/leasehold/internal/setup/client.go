package setup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// A client is an MCP client that setup knows.
type client struct {
	name  string // on the command line
	title string

	// found reports whether the client is on this machine.
	found func(m machine) bool

	// files returns the files that the client reads, for the user or for the project.
	files func(m machine, project bool) []file

	// note returns what the user should know about the client, or "".
	note func(project bool) string
}

// A file is a file that a client reads, with what must be in it.
type file struct {
	path string
	text language
	want config
	note string // shown with the file if it is written

	hook    bool  // path is a hook of git; of the rest only note is used
	problem error // why git does not say where its hooks are; path is then the top of the repository

	// alternative returns want if that depends on the file's text. It may be nil.
	alternative func(text []byte) config
}

// clients lists all clients that setup knows, including git, in the order in which they
// are shown.
var clients = []client{claude, codex, gemini, opencode, kilo, copilot, qwen, kimi, crush, cursor, vscode, git}

// A machine is the environment in which setup reads and writes files.
type machine struct {
	home    string
	top     string // of the project
	command string // starts leasehold
	getenv  func(string) string
	look    func(program string) (string, error)
}

// ServerFiles returns the files in which a client lists its servers, as setup writes them:
// that of this user, and that of the project whose top is given.
func ServerFiles(name, top string) (paths []string) {
	for _, c := range clients {
		if c.name != name {
			continue
		}
		for _, project := range []bool{false, true} {
			m, err := thisMachine(top, project)
			if err != nil {
				continue // there is no home
			}
			for _, f := range c.files(m, project) {
				if len(f.want.entry) > 0 || f.alternative != nil {
					paths = append(paths, f.path)
				}
			}
		}
	}
	return paths
}

// dir returns the directory that a variable names, or else one below home.
func (m machine) dir(variable string, below ...string) string {
	if dir := m.getenv(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(append([]string{m.home}, below...)...)
}

// has reports whether a program is in the PATH, or one of the directories exists.
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

// thisMachine returns the machine that the command runs on.
func thisMachine(top string, project bool) (machine, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return machine{}, exit.Hint(fmt.Errorf("the configurations of your clients are in your home directory: %w", err), "set HOME")
	}
	m := machine{home: home, top: top, getenv: os.Getenv, look: exec.LookPath, command: "leasehold"}
	if _, err := exec.LookPath(m.command); err == nil || project { // files that are shared must not name a path of this machine
		return m, nil
	}
	m.command, err = os.Executable()
	return m, err
}

// The time limits for calls and for the start. A call may wait for 50 s.
const (
	callSeconds  = 600
	startSeconds = 30
	leastCall    = 55 // seconds; a limit that the user has set is kept if it is at least this
)

// launch returns the settings that a client needs to start the server.
func launch(m machine, args ...string) []setting {
	return []setting{
		{name: "command", value: m.command, program: true, launch: true},
		{name: "args", value: append([]string{"mcp"}, args...), any: true, launch: true},
	}
}

// callLimit is the time limit of a call, in milliseconds.
var callLimit = setting{name: "timeout", value: callSeconds * 1000, least: leastCall * 1000}

// instructions returns a file with instructions for models.
func instructions(path ...string) file {
	return file{path: filepath.Join(path...), text: markedText{}, want: config{block: protocol}}
}

func onMac() bool { return runtime.GOOS == "darwin" }
