package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// resize says how large the terminal is.
func (c *console) resize(columns, rows uint16) {
	c.t.Helper()
	c.control(func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
}

// mode is how the terminal treats what is typed: raw or not.
func (c *console) mode() (flags uint32) {
	c.t.Helper()
	c.control(func(fd int) error {
		state, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err == nil {
			flags = state.Lflag & (unix.ECHO | unix.ICANON | unix.ISIG)
		}
		return err
	})
	return flags
}

func (c *console) control(do func(fd int) error) {
	c.t.Helper()
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	var doErr error
	if err := raw.Control(func(fd uintptr) { doErr = do(int(fd)) }); err != nil || doErr != nil {
		c.t.Fatal(err, doErr)
	}
}

// manifestOf writes the manifest of a run whose root is a shell script.
func manifestOf(t *testing.T, dir, script string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "tree.toml")
	text := fmt.Sprintf("[agents.a]\nextends = \"command\"\ncommand = [\"sh\", \"-c\", %q]\n[root]\nagent = \"a\"\nprompt = \"go\"\n", script)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// colour is a sequence that sets one.
var colour = regexp.MustCompile(`\x1b\[[0-9;:]*m`)

// The real command on a terminal, of a run that the real command dispatched: it is
// drawn, obeys keys, shows what an agent wrote, and leaves the terminal as it was,
// however it ends.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	bin, leasehold, env := atTerminal(t, "TERM=xterm-256color")
	manifest := manifestOf(t, bin, "echo written-by-the-agent")
	dispatch := exec.CommandContext(t.Context(), leasehold, "dispatch", manifest)
	dispatch.Env, dispatch.Dir = env, bin
	if out, err := dispatch.CombinedOutput(); err != nil {
		t.Fatalf("dispatch: %v\n%s", err, out)
	}

	for _, kind := range []string{"TERM=dumb", "TERM="} {
		plain := openConsole(t, append(slices.Clone(env), kind), "sh", "-c",
			"leasehold top --run tree; leasehold dispatch "+manifest+"; leasehold runs --watch --all; sleep 1000")
		plain.sees("leasehold: top needs a terminal")
		plain.sees("run tree is over")
		plain.sees("STATE")
		if strings.Contains(plain.all.String(), "\x1b") {
			t.Errorf("%s: control sequences for a terminal that knows none: %q", kind, plain.all.String())
		}
	}

	// A shell holds the terminal, so that it is there after top has ended.
	start := func(t *testing.T, more ...string) (*console, uint32) {
		c := openConsole(t, append(env, more...), "sh", "-c", `read x; leasehold top --run tree; echo "ended with $?"; sleep 1000`)
		c.resize(60, 20)
		before := c.mode()
		c.types("\n")
		c.sees("succeeded") // the title may be drawn in parts
		return c, before
	}
	restored := func(t *testing.T, c *console, before uint32) {
		t.Helper()
		c.sees("\x1b[?1049l") // the first screen again
		c.sees("ended with 0")
		if after := c.mode(); after != before {
			t.Errorf("the terminal's mode is %x, was %x", after, before)
		}
	}

	t.Run("keys", func(t *testing.T) {
		c, before := start(t)
		if c.mode() == before {
			t.Error("keys are not read one by one")
		}
		c.types("l")
		c.sees("written-by-the-agent")
		c.types("\x1b")
		c.sees("q ends")
		c.types("q")
		restored(t, c, before)
		if !colour.MatchString(c.all.String()) {
			t.Error("no colours")
		}
	})
	signalled := func(c *console, sig syscall.Signal) {
		for _, pid := range descendants(t, c.cmd.Process.Pid) {
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == leasehold {
				syscall.Kill(pid, sig)
			}
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			c, before := start(t)
			signalled(c, sig)
			restored(t, c, before)
			c = openConsole(t, env, "sh", "-c", `leasehold tree --all --watch; echo "ended with $?"; sleep 1000`)
			c.sees("Ctrl-C ends")
			signalled(c, sig)
			c.sees("\x1b[?1049l")
			c.sees("ended with 0")
		})
	}
	t.Run("timeout", func(t *testing.T) { // which puts its command into the background, and sends it SIGTERM and SIGCONT
		c := openConsole(t, env, "sh", "-c", `timeout 1 leasehold top --run tree; echo "ended with $?"; sleep 1000`)
		c.sees("ended with 124")
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		c, before := start(t)
		c.types(ctrlC)
		restored(t, c, before)
	})
	t.Run("Ctrl-\\", func(t *testing.T) { // Go prints what its goroutines do, which must be seen
		c := openConsole(t, env, "sh", "-c", `leasehold tree --all --watch; echo "ended with $?"; sleep 1000`)
		c.sees("Ctrl-C ends")
		c.types("\x1c")
		c.sees("\x1b[?1049l")
		c.sees("SIGQUIT: quit")
		c, before := start(t) // for which Ctrl-\ is a key
		signalled(c, syscall.SIGQUIT)
		c.sees("\x1b[?1049l")
		c.sees("SIGQUIT: quit")
		c.sees("ended with ")
		if after := c.mode(); after != before {
			t.Errorf("the terminal's mode is %x, was %x", after, before)
		}
	})
	t.Run("Ctrl-Z", func(t *testing.T) {
		for _, command := range []string{"top --run tree", "tree --all --watch"} {
			c := openConsole(t, env, "sh", "-c", `read x; set -m; leasehold `+command+`; echo "stopped with $?"; fg >/dev/null; echo "ended with $?"; sleep 1000`)
			c.resize(60, 20)
			c.types("\n")
			c.sees("ends")
			c.types(ctrlZ)
			c.sees("\x1b[?1049l")
			c.sees("stopped with 14") // by SIGTSTP or SIGSTOP
			c.sees("\x1b[?1049h")
			c.sees("ends") // it is drawn again
			c.types(ctrlC)
			c.sees("ended with 0")
		}
	})
	t.Run("NO_COLOR", func(t *testing.T) {
		c, before := start(t, "NO_COLOR=1")
		c.types("x")
		c.sees("root has ended")
		c.types("q")
		restored(t, c, before)
		if found := colour.FindString(c.all.String()); found != "" {
			t.Errorf("%q", found)
		}
	})
}

// A dispatch leaves its summary on the terminal, and not the tree as it was a moment
// before the end, in which agents still run.
func TestDispatchLeavesOnlyItsSummaryOnATerminal(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	bin, leasehold, env := atTerminal(t, "TERM=xterm", "NO_COLOR=1")
	manifest := manifestOf(t, bin, "until [ -e go ]; do sleep 0.05; done")
	c := openConsole(t, env, leasehold, "dispatch", manifest)
	c.sees("running")
	if err := os.WriteFile(filepath.Join(bin, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.sees("\x1b[?1049l") // the first screen again
	shown := c.seen.String() + c.rest()
	if err := c.cmd.Wait(); err != nil || !strings.Contains(shown, "run tree: 1 succeeded") || strings.Contains(shown, "HOLDS") {
		t.Errorf("%v, %q", err, shown)
	}
}
