package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
)

// A client and a daemon of different versions work together as far as they understand
// one another. Where they do not, the client says which of them is to be replaced.
func TestAClientBesideADaemonOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	older, newer := builtAs(t, dir, "9.0.0"), builtAs(t, dir, "10.0.0")
	env := append(connection.WithoutSecrets(os.Environ()),
		"HOME="+dir, "XDG_STATE_HOME="+dir, "XDG_RUNTIME_DIR="+dir, "LEASEHOLD_SOCKET=", "LEASEHOLD_RUN=r")
	run := func(binary string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.Env = dir, env
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	const (
		replaceDaemon  = "the daemon is version 9.0.0 and older than this command, version 10.0.0: leasehold restart starts the installed version, and no session ends by that"
		replaceCommand = "this command is version 9.0.0 and older than the daemon, version 10.0.0: install version 10.0.0 here too"
	)
	for _, of := range []struct{ daemon, client, version, advice string }{
		{older, newer, "9.0.0", replaceDaemon},
		{newer, older, "10.0.0", replaceCommand},
		{newer, newer, "10.0.0", ""},
	} {
		if out := run(of.daemon, "call", "run_lease_acquire", "key=x"); !strings.Contains(out, `run lease "x" acquired`) { // starts the daemon
			t.Fatal(out)
		}
		if out := run(of.client, "status"); !strings.Contains(out, "version  "+of.version+"\n") {
			t.Errorf("status: %s", out)
		}
		if out := run(of.client, "call", "run_lease_acquire", "key=y"); !strings.Contains(out, `run lease "y" acquired`) || strings.Contains(out, "hint:") {
			t.Errorf("what both understand: %s", out)
		}
		hint := ""
		if of.advice != "" {
			hint = "hint: " + of.advice + "\n"
		}
		for _, call := range [][]string{
			{"call", "run_lease_acquire", "key=y", "colour=1"},
			{"call", "lease_paint", "key=y"},
		} {
			out := run(of.client, call...)
			if of.advice != "" && !strings.HasSuffix(out, hint) || strings.Contains(out, " version ") != (of.advice != "") {
				t.Errorf("client %s, daemon %s: %v: %s, want %s", filepath.Base(of.client), filepath.Base(of.daemon), call, out, hint)
			}
		}
		what, do, _ := strings.Cut(of.advice, ": ")
		if out := run(of.client, "doctor"); !strings.Contains(out, what) || !strings.Contains(out, do) {
			t.Errorf("doctor: %s", out)
		}
		if of.daemon == older { // as the advice says: the newer one goes on with what the older one had
			run(of.client, "exec", "--lease", "kept", "--", "sh", "-c", "true")
			if out := run(of.client, "restart"); !strings.Contains(out, "10.0.0") {
				t.Errorf("restart: %s", out)
			}
			if out := run(of.client, "status"); !strings.Contains(out, "version  10.0.0\n") {
				t.Errorf("status after the restart: %s", out)
			}
		}
		if out := run(of.client, "stop"); !strings.Contains(out, "stopped") {
			t.Errorf("stop: %s", out)
		}
	}
}
