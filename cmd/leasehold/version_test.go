package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
)

// builtAs gives the command as a release of that version is built.
func builtAs(t *testing.T, dir, version string) string {
	t.Helper()
	binary := filepath.Join(dir, "leasehold-"+version)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary,
		"-ldflags", "-X github.com/leasehold/leasehold/cmd/leasehold/internal/build.release="+version, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// A client and a daemon of different versions work together as far as they understand
// one another. Where they do not, the client says which of them is to be replaced.
func TestAClientBesideADaemonOfAnotherVersion(t *testing.T) {
	dir, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	older, newer := builtAs(t, dir, "0.1.0"), builtAs(t, dir, "0.10.0")
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
		replaceDaemon  = "the daemon is version 0.1.0 and older than this command, version 0.10.0: leasehold restart starts the installed version, and no session ends by that"
		replaceCommand = "this command is version 0.1.0 and older than the daemon, version 0.10.0: install version 0.10.0 here too"
	)
	for _, of := range []struct{ daemon, client, version, advice string }{
		{older, newer, "0.1.0", replaceDaemon},
		{newer, older, "0.10.0", replaceCommand},
		{newer, newer, "0.10.0", ""},
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
			if out := run(of.client, "restart"); !strings.Contains(out, "0.10.0") {
				t.Errorf("restart: %s", out)
			}
			if out := run(of.client, "status"); !strings.Contains(out, "version  0.10.0\n") {
				t.Errorf("status after the restart: %s", out)
			}
		}
		if out := run(of.client, "stop"); !strings.Contains(out, "stopped") {
			t.Errorf("stop: %s", out)
		}
	}
}
