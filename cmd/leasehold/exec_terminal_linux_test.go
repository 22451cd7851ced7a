package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A console is a terminal with a program in it, and the end of it at which a
// person would sit.
type console struct {
	t    *testing.T
	file *os.File
	cmd  *exec.Cmd
	seen strings.Builder
	all  strings.Builder // what was ever shown
}

// openConsole starts a program as the first of a terminal's session.
func openConsole(t *testing.T, env []string, argv ...string) *console {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number := 0
	err = raw.Control(func(fd uintptr) { // Fd would make it block, and deadlines useless
		unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &console{t: t, file: file, cmd: cmd}
}

func (c *console) types(keys string) {
	c.t.Helper()
	if _, err := c.file.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
}

// sees waits until the text is on the screen, below what was seen before.
func (c *console) sees(text string) {
	c.t.Helper()
	c.file.SetReadDeadline(time.Now().Add(patience))
	for !strings.Contains(c.seen.String(), text) {
		b := make([]byte, 4096)
		n, err := c.file.Read(b)
		if err != nil {
			c.t.Fatalf("no %q in %q: %v", text, c.seen.String(), err)
		}
		c.seen.Write(b[:n])
		c.all.Write(b[:n])
	}
	_, rest, _ := strings.Cut(c.seen.String(), text)
	c.seen.Reset()
	c.seen.WriteString(rest)
}

// atTerminal returns a home with the command in it, the path of the command, and the
// environment of somebody who uses it at a terminal.
func atTerminal(t *testing.T, more ...string) (home, leasehold string, env []string) {
	home = t.TempDir()
	leasehold = leaseholdIn(t, home)
	return home, leasehold, append([]string{
		"PATH=" + home + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + inDir(t, "home"), "LEASEHOLD_SOCKET=" + inDir(t, "s"),
	}, more...)
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// A program at a terminal is used as if exec were not there.
func TestExecLeavesTheTerminalToTheProgram(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	_, leasehold, env := atTerminal(t, "TERM=dumb", "PS1=say: ", "PS2=", "ENV=")

	t.Run("Ctrl-C is the program's to answer", func(t *testing.T) {
		c := openConsole(t, env, leasehold, "exec", "--lease", "a", "--", "sh", "-c", `trap 'echo closing; exit 5' INT; echo ready; while :; do sleep 0.05; done`)
		c.sees("ready")
		c.types(ctrlC)
		c.sees("closing")
		c.cmd.Wait()
		if code := c.cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("exit code %d", code)
		}
	})

	// A shell goes on with the next command unless Ctrl-C ends it, too. It ends only if the
	// command that it waits for ended by SIGINT.
	const script = `leasehold exec --lease l --wait 600 -- sh -c 'echo ready; while :; do sleep 0.05; done'; echo went on`
	for _, shell := range []string{"sh", "bash"} {
		ends := func(t *testing.T, c *console) {
			t.Helper()
			c.types(ctrlC)
			if err := c.cmd.Wait(); err == nil || err.Error() != "signal: interrupt" {
				t.Errorf("the script ended with %v", err)
			}
		}
		t.Run("Ctrl-C in the program ends a script of "+shell, func(t *testing.T) {
			c := openConsole(t, env, shell, "-c", script)
			c.sees("ready")
			ends(t, c)
		})
		t.Run("Ctrl-C in the line ends a script of "+shell, func(t *testing.T) {
			holder := openConsole(t, env, leasehold, "exec", "--lease", "l", "--", "sh", "-c", `echo ready; read x`)
			holder.sees("ready")
			c := openConsole(t, env, shell, "-c", script)
			c.sees("you are number 1 in line")
			ends(t, c)
			c = openConsole(t, env, shell, "-c", `(until leasehold leases --json | grep -q '"in_line":1'; do sleep 0.05; done; echo ready) & leasehold exec --lease l --wait 600 -- true 2>/dev/null; echo went on`)
			c.sees("ready") // and errors that go to a file change nothing
			ends(t, c)
			holder.types("\n")
			holder.cmd.Wait()
		})
	}
	t.Run("a signal to exec is for the program alone", func(t *testing.T) {
		c := openConsole(t, env, "sh", "-c", `leasehold exec --lease m -- sh -c 'echo ready; kill -INT $PPID; while :; do sleep 0.05; done'; echo "code $?"`)
		c.sees("code 130")
	})

	// A script without job control has what it starts with & ignore Ctrl-C.
	t.Run("a signal to exec in the background of a script ends it", func(t *testing.T) {
		holder := openConsole(t, env, leasehold, "exec", "--lease", "g", "--", "sh", "-c", `echo ready; read x`)
		holder.sees("ready")
		c := openConsole(t, env, "sh", "-c", `leasehold exec --lease g --wait 600 -- true &
			until leasehold leases --json | grep -q '"in_line":1'; do sleep 0.05; done; kill -INT $!; wait $!; echo "code $?"`)
		c.sees("code 130")
		holder.types("\n")
		holder.cmd.Wait()
	})

	t.Run("a user who waits is told who is in the way", func(t *testing.T) {
		holder := openConsole(t, env, leasehold, "exec", "--lease", "w", "--", "sh", "-c", `echo ready; read x`)
		holder.sees("ready")
		c := openConsole(t, env, leasehold, "exec", "--lease", "w", "--wait", "600", "--", "echo", "got it")
		c.sees(`leasehold: waiting: lease "w" held by actor `)
		c.sees("; it works in ")
		c.sees("; you are number 1 in line")
		holder.types("\n")
		c.sees("got it")
	})

	// Nobody could let it run on.
	t.Run("Ctrl-Z stops nothing without a shell", func(t *testing.T) {
		c := openConsole(t, env, leasehold, "exec", "--lease", "b", "--", "sh", "-c", `read x; echo ready; read x; echo "read $x"`)
		c.types("start\n") // what reads has the terminal
		c.sees("ready")
		c.types(ctrlZ)
		c.types("words\n")
		c.sees("read words")
		c.cmd.Wait()
		if code := c.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("Ctrl-Z gives the terminal to the shell, and fg back", func(t *testing.T) {
		c := openConsole(t, env, "sh", "-i")
		c.sees("say: ")
		c.types(`leasehold exec --lease c -- sh -c 'read x; echo rea""dy; read x; echo "read $x by $LEASEHOLD_LEASE"'` + "\nstart\n")
		c.sees("ready")
		c.types(ctrlZ)
		c.sees("say: ")
		c.types("leasehold leases | sed 's/^/held /'\n")
		c.sees("held c ")
		c.sees("say: ")
		c.types("fg\n")
		c.types("words\n")
		c.sees("read words by c")
		c.sees("say: ")
		c.types("leasehold leases; echo now $?\n")
		c.sees("no leases")
		c.sees("now 0")
	})

	// Nobody renews it meanwhile. Only if nobody else takes it, the program goes on.
	t.Run("Ctrl-Z may last longer than the lease", func(t *testing.T) {
		c := openConsole(t, env, "sh", "-i")
		c.sees("say: ")
		for _, taken := range []bool{false, true} {
			c.types(`leasehold exec --lease d --ttl 2 -- sh -c 'read x; echo rea""dy; read x; echo "read $x by $LEASEHOLD_LEASE"'` + "\nstart\n")
			c.sees("ready")
			c.types(ctrlZ)
			c.sees("say: ")
			c.types("until leasehold leases | grep -q 'no leases'; do :; done; echo it has exp''ired\n")
			c.sees("it has expired")
			c.sees("say: ")
			if taken {
				c.types("leasehold exec --lease d -- echo it is mi''ne\n")
				c.sees("it is mine")
				c.sees("say: ")
			}
			c.types("fg\n")
			if !taken {
				c.types("words\n")
				c.sees("read words by d")
			}
			c.sees("say: ")
			c.types("echo now $?\n")
			c.sees(map[bool]string{false: "now 0", true: "now 76"}[taken])
			c.sees("say: ")
		}
	})
}
