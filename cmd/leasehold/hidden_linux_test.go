package main

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

// rest reads what is shown until the program has ended.
func (c *console) rest() string {
	c.t.Helper()
	c.file.SetReadDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(c.file)
	if err != nil && !errors.Is(err, syscall.EIO) { // Linux says so of a terminal that nobody has open
		c.t.Fatal(err)
	}
	return string(text)
}

// What an agent wrote controls no terminal, whichever command shows it and in which form.
func TestWhatAgentsWriteControlsNoTerminal(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	bin := t.TempDir()
	leasehold := leaseholdIn(t, bin)
	env := []string{"PATH=" + bin, "HOME=" + bin, "TERM=xterm", "NO_COLOR=1", "LEASEHOLD_SOCKET=" + inDir(t, "s"), "LEASEHOLD_RUN=r"}
	call := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(leasehold, append([]string{"call"}, args...)...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	// C1, the way out of right-to-left, and what no screen shows.
	const hidden = "a\u009b31mb\u0085c\u202ed\u2066e\u200bf\u2028g\U000e0041h\x7f"
	call("kv_set", "path=/shared/x", `value="\u001b[2J\r\n`+hidden+`"`)
	id := call("task_enqueue", "queue=q", `payload="\u001b[2J`+hidden+`"`, "--field", "/task_id")
	for _, args := range [][]string{
		{"kv", "/shared/**", "--values"},
		{"kv", "/shared/**", "--values", "--json"},
		{"queue", "show", id},
		{"queue", "show", id, "--json"},
		{"call", "kv_get", "path=/shared/x"},
		{"call", "kv_get", "path=/shared/x", "--json"},
		{"call", "kv_get", "path=/shared/x", "--field", "/entry"},
		{"call", "kv_get", "path=/shared/x", "--field", "/entry/value"},
	} {
		c := openConsole(t, env, append([]string{leasehold}, args...)...)
		shown := c.rest()
		if err := c.cmd.Wait(); err != nil || !strings.Contains(shown, "31mb") {
			t.Errorf("%v: %v, %q", args, err, shown)
		}
		for _, r := range strings.ReplaceAll(shown, "\r\n", "\n") {
			if r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
				t.Errorf("%v shows %U: %q", args, r, shown)
				break
			}
		}
	}
}
