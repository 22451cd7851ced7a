package book

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// buildCommand builds the command, in a directory that is to be in the PATH.
func buildCommand(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "leasehold"), "./cmd/leasehold")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// home is an environment of its own, with the command in the PATH.
func home(t *testing.T, bin string) []string {
	t.Helper()
	// The path of a socket must be short.
	dir, err := os.MkdirTemp("", "book")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{
		"PATH=" + bin + string(filepath.ListSeparator) + os.Getenv("PATH"),
		"HOME=" + dir, "TMPDIR=" + dir, "XDG_STATE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir, "NO_COLOR=1",
		"npm_config_update_notifier=false",
	}
}

// patience is how long a command may take on a machine that has much else to do. It
// decides only when to give up.
const patience = 2 * time.Minute

// Every session that a page shows as console goes as it is shown: what follows
// "$ " is run by a shell, and prints the lines below it, in which … stands for
// anything. The sessions of one page share a daemon.
func TestConsoleSessions(t *testing.T) {
	bin := buildCommand(t)
	for _, p := range pages(t) {
		steps := console(p)
		if len(steps) == 0 {
			continue
		}
		t.Run(filepath.Base(p.file), func(t *testing.T) {
			if _, err := exec.LookPath("curl"); err != nil && strings.Contains(steps[len(steps)-1].command, "curl ") {
				t.Skip("its sessions use curl, which is not here")
			}
			env := home(t, bin)
			env = append(env, "API="+serve(t, env)+"/api/v1")
			for _, s := range steps {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				cmd := exec.CommandContext(ctx, "sh", "-c", s.command)
				cmd.Env = env
				out, err := cmd.CombinedOutput()
				cancel()
				if err != nil {
					t.Fatalf("%s:%d: %s: %v\n%s", p.file, s.n, s.command, err, out)
				}
				if want := pattern(s.output); !want.MatchString(compared(string(out))) {
					t.Errorf("%s:%d: %s printed\n%s\nand not\n%s", p.file, s.n, s.command, out, s.output)
				}
			}
		})
	}
}

// A step is one command of a console session.
type step struct {
	n       int
	command string
	output  string
}

func console(p page) (steps []step) {
	for _, l := range p.lines {
		if l.fence != "console" {
			continue
		}
		if command, ok := strings.CutPrefix(l.text, "$ "); ok {
			steps = append(steps, step{n: l.n, command: command})
		} else if len(steps) > 0 {
			steps[len(steps)-1].output += l.text + "\n"
		}
	}
	return steps
}

// serve runs a daemon until the test ends, and gives the URL of its HTTP.
func serve(t *testing.T, env []string) (url string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command("sh", "-c", "exec leasehold serve --http 127.0.0.1:0")
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v\n%s", err, said.Bytes())
		}
	})
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(50 * time.Millisecond) {
		look := exec.Command("sh", "-c", "leasehold status --json")
		look.Env = env
		var status struct{ HTTP string }
		if out, err := look.Output(); err == nil && json.Unmarshal(out, &status) == nil && status.HTTP != "" {
			return strings.TrimSuffix(status.HTTP, "/mcp")
		}
	}
	t.Fatal("the daemon did not come up")
	return ""
}

// Every command that the book and the README list is there, has an example,
// and every command that is there is listed.
func TestCommands(t *testing.T) {
	bin := buildCommand(t)
	env := home(t, bin)
	listed := make(map[string]bool)
	for _, cells := range table(t, "book/src/commands.md", "command") {
		listed[spans(cells[0])[0]] = true
	}
	helps := make(map[string]string)
	for command := range listed {
		help := leasehold(t, env, command+" --help")
		helps[command] = help
		if !strings.Contains(help, "Usage:\n  "+command) {
			t.Errorf("%s --help does not say how it is used:\n%s", command, help)
		}
		if !strings.Contains(help, "Examples:") && command != "leasehold completion" {
			t.Errorf("%s --help has no example", command)
		}
	}
	helps["leasehold"] = leasehold(t, env, "leasehold --help")
	there := regexp.MustCompile(`(?m)^  (\w+) {2,}\S`)
	// Commands that have others below them, and those of them that no row lists.
	for command := range listed {
		parent, _, _ := strings.Cut(strings.TrimPrefix(command, "leasehold "), " ")
		if parent = "leasehold " + parent; parent == command || helps[parent] != "" && !listed[parent] {
			continue
		}
		if helps[parent] == "" {
			helps[parent] = leasehold(t, env, parent+" --help")
		}
		_, below, _ := strings.Cut(helps[parent], "Available Commands:")
		for _, m := range there.FindAllStringSubmatch(below, -1) {
			if name := parent + " " + m[1]; helps[name] == "" {
				helps[name] = leasehold(t, env, name+" --help")
			}
		}
	}
	checkExamplesAreComplete(t, helps)
	for _, m := range there.FindAllStringSubmatch(helps["leasehold"], -1) {
		name := "leasehold " + m[1]
		known := listed[name] || m[1] == "help"
		for command := range listed {
			known = known || strings.HasPrefix(command, name+" ")
		}
		if !known && m[1] == strings.ToLower(m[1]) {
			t.Errorf("commands.md does not list %s", name)
		}
	}
}

func leasehold(t *testing.T, env []string, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v", command, fmt.Errorf("%w\n%s", err, out))
	}
	return string(out)
}
