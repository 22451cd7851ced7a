package agent

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold/leasehold/dispatch/process"
)

// ours is the prefix of variables that only leasehold sets.
const ours = "LEASEHOLD_"

// env is the environment of a process.
type env map[string]string

// environ returns the environment of a process. It starts with that of
// leasehold dispatch without its own variables. Later ones override earlier
// ones: the client's defaults, the profile, the task, what the client requires,
// and Leasehold's variables for every process.
func environ(p Profile, t Task, conf configuration, fill filler) (env, error) {
	e := make(env)
	for _, pair := range os.Environ() {
		if name, value, ok := strings.Cut(pair, "="); ok && !strings.HasPrefix(name, ours) && !slices.Contains(conf.drop, name) {
			e[name] = value
		}
	}
	maps.Copy(e, conf.env)
	for name, value := range p.Env {
		e[name] = fill.fill(value)
	}
	maps.Copy(e, t.Env)
	maps.Copy(e, conf.set)
	maps.Copy(e, t.variables())
	if err := e.leadToLeasehold(t); err != nil {
		return nil, err
	}
	return e, nil
}

// variables returns the variables that Leasehold sets for every process that it
// launches.
func (t Task) variables() map[string]string {
	v := map[string]string{
		"LEASEHOLD_SOCKET": t.Socket, "LEASEHOLD_TOKEN": t.Token, "LEASEHOLD_SESSION": t.Session,
		"LEASEHOLD_SERVER": t.Servers, "LEASEHOLD_SERVER_CA": t.Authority, "LEASEHOLD_LAUNCHER": t.Launcher,
		"LEASEHOLD_RUN": t.Run, "LEASEHOLD_RUN_ID": t.RunID, "LEASEHOLD_RUN_DIR": t.RunDir,
		process.ActorMark: t.ActorID, "LEASEHOLD_NAME": t.Name, "LEASEHOLD_PATH": t.Path, "LEASEHOLD_ROLE": t.Role,
		"LEASEHOLD_LIFE": strconv.Itoa(max(t.Life, 1)), "LEASEHOLD_TOOLS": strings.Join(t.Allow, ","),
	}
	maps.DeleteFunc(v, func(_, value string) bool { return value == "" })
	return v
}

// variableNames returns, sorted in two groups, the names of the variables that
// a client must pass to its MCP server: first Leasehold's own, which have the
// secrets of the actor and identify the server's process as one of the actor's;
// then those that locate the state, because the server may have to start a
// daemon.
func (t Task) variableNames() []string {
	names := slices.Sorted(maps.Keys(t.variables()))
	for _, name := range []string{"XDG_RUNTIME_DIR", "XDG_STATE_HOME"} {
		if os.Getenv(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

// leadToLeasehold makes sure that the name leasehold runs the binary that
// dispatched the run.
func (e env) leadToLeasehold(t Task) error {
	if t.Leasehold == "" {
		return nil
	}
	want, err := os.Stat(t.Leasehold)
	if err != nil {
		return err
	}
	const name = "leasehold"
	if found, err := e.find(name, t.Directory); err == nil {
		if have, err := os.Stat(found); err == nil && os.SameFile(want, have) {
			return nil
		}
	}
	dir := filepath.Dir(t.Leasehold)
	if filepath.Base(t.Leasehold) != name {
		dir = filepath.Join(t.Scratch, "bin")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		link := filepath.Join(dir, name)
		_ = os.Remove(link) // from an earlier launch
		if err := os.Symlink(t.Leasehold, link); err != nil {
			return err
		}
	}
	e["PATH"] = dir + string(filepath.ListSeparator) + e["PATH"]
	return nil
}

// find returns the path at which the process will find a program. If that is a script,
// the program that runs it must be there as well.
func (e env) find(program, dir string) (string, error) {
	path, err := e.locate(program, dir)
	if err == nil {
		err = e.findInterpreter(path, dir)
	}
	return path, err
}

// findInterpreter looks for the program that the first line of a script names, also
// if env is to find it.
func (e env) findInterpreter(script, dir string) error {
	f, err := os.Open(script)
	if err != nil {
		return nil // what can be executed need not be readable
	}
	defer f.Close()
	head := make([]byte, 256) // as much as Linux reads
	n, _ := io.ReadFull(f, head)
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	rest, isScript := strings.CutPrefix(line, "#!")
	words := strings.FieldsFunc(rest, func(c rune) bool { return c == ' ' || c == '\t' })
	if !isScript || len(words) == 0 {
		return nil
	}
	program := words[0]
	if !strings.Contains(program, "/") {
		program = "./" + program // the kernel looks in no PATH
	}
	_, err = e.locate(program, dir)
	if err == nil && filepath.Base(program) == "env" && len(words) > 1 && !strings.HasPrefix(words[1], "-") && !strings.Contains(words[1], "=") {
		_, err = e.locate(words[1], dir)
	}
	switch {
	case err != nil && strings.HasSuffix(line, "\r"):
		return fmt.Errorf("%s begins with %q: no program has that name: save it with the line ends of Unix", script, line)
	case err != nil:
		return fmt.Errorf("%s begins with %q: %w", script, line, err)
	}
	return nil
}

func (e env) locate(program, dir string) (string, error) {
	if strings.Contains(program, "/") {
		if !filepath.IsAbs(program) {
			program = filepath.Join(dir, program)
		}
		return program, executable(program)
	}
	for _, in := range filepath.SplitList(e["PATH"]) {
		if !filepath.IsAbs(in) {
			continue // like exec.LookPath, it ignores relative entries
		}
		if path := filepath.Join(in, program); executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in the PATH: install it, or name it by its whole path", program)
}

func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s is not there: create it, or name another program", path)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a program in it", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s cannot be executed: chmod +x it", path)
	}
	return nil
}

// Find returns the path of the profile's program, for a process that runs in
// dir. The error says why it was not found.
func (p Profile) Find(dir string) (string, error) {
	if len(p.Command) == 0 {
		return "", exec.ErrNotFound
	}
	e := env{"PATH": os.Getenv("PATH")}
	if path, ok := p.Env["PATH"]; ok {
		e["PATH"] = path
	}
	return e.find(p.Command[0], dir)
}

func (e env) list() []string {
	list := make([]string, 0, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		list = append(list, name+"="+e[name])
	}
	return list
}
