package main

import (
	"errors"
	"io/fs"
	"os"
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
