package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// At a terminal setup shows what it would write and asks; only a yes writes it.
func TestSetupAsksAtATerminal(t *testing.T) {
	t.Parallel()
	bin, home := t.TempDir(), t.TempDir()
	leasehold := leaseholdIn(t, bin)
	env := []string{"HOME=" + home, "PATH=" + bin, "TERM=xterm", "NO_COLOR=1"}
	file := filepath.Join(home, ".gemini", "settings.json")
	for _, one := range []struct {
		keys string
		says string
		args []string
		want error
	}{
		{"\n", "nothing was written", nil, fs.ErrNotExist},
		{"\x03", "interrupted", nil, fs.ErrNotExist}, // once is enough
		{"\x04", "nothing was written", nil, fs.ErrNotExist},
		{"no\n", "nothing was written", nil, fs.ErrNotExist},
		{"y\n", "done", nil, nil},
		{"n\n", "nothing was written", []string{"--uninstall"}, nil},
		{"yes\n", "done", []string{"--uninstall"}, fs.ErrNotExist},
	} {
		c := openConsole(t, env, append([]string{leasehold, "setup", "gemini"}, one.args...)...)
		c.sees("settings.json")
		c.sees("Write this? [y/N] ")
		c.types(one.keys)
		c.sees(one.says)
		err := c.cmd.Wait()
		if (err == nil) != (one.says == "done") {
			t.Errorf("%q: %v", one.keys, err)
		}
		if _, err := os.Stat(file); !errors.Is(err, one.want) {
			t.Errorf("after %q: %v, want %v", one.keys, err, one.want)
		}
	}
}

// At a terminal runs rm --ended names the runs and asks; only a yes deletes them.
func TestRunsAsksAtATerminal(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	leasehold := leaseholdIn(t, t.TempDir())
	env := append(environOf(t), "LEASEHOLD_SOCKET="+inDir(t, "s"), "TERM=xterm", "NO_COLOR=1")
	for _, args := range [][]string{
		{"actor", "add", "--run", "over", "--name", "lead", "--role", "root"},
		{"actor", "end", "--run", "over", "root"},
	} {
		cmd := exec.Command(leasehold, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	for _, one := range []struct{ keys, says string }{
		{"\n", "no run was deleted"},
		{"\x03", "interrupted"},
		{"\x04", "no run was deleted"},
		{"y\n", "run over is deleted"},
	} {
		c := openConsole(t, env, leasehold, "runs", "rm", "--ended")
		c.sees("Delete 1 run (over), with actors, stores and tasks? [y/N] ")
		c.types(one.keys)
		c.sees(one.says)
		if err := c.cmd.Wait(); (err == nil) != (one.keys == "y\n") {
			t.Errorf("%q: %v", one.keys, err)
		}
	}
}
