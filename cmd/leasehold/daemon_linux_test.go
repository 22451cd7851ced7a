package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

// descendants are all processes below pid, found by parent alone, as opencode
// finds those of a server that it ends.
func descendants(t *testing.T, pid int) (list []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	children := make(map[int][]int)
	for _, name := range names {
		child, _ := strconv.Atoi(filepath.Base(name))
		if p := process.Find(child); p.PID != 0 {
			children[p.Parent] = append(children[p.Parent], child)
		}
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		list = append(list, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return list
}

// A client that ends its MCP server with all that descends from it leaves the
// daemon that the server started.
func TestDaemonOutlivesAClientThatEndsAllDescendants(t *testing.T) {
	t.Parallel()
	newDir(t)
	s, cmd := startShim(t, "--name", "first")
	s.handshake()
	s.call(1, "run_lease_acquire", `{"key":"k"}`)
	s.answer(1)
	daemon := daemonPID(t)
	for _, pid := range append(descendants(t, os.Getpid()), cmd.Process.Pid) {
		if pid == daemon {
			t.Errorf("the daemon, %d, descends from the client, %d", daemon, os.Getpid())
		}
	}
	for _, pid := range append(descendants(t, cmd.Process.Pid), cmd.Process.Pid) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.ended
	second, _ := startShim(t, "--name", "second")
	second.handshake()
	second.call(1, "run_lease_acquire", `{"key":"k","wait_secs":50}`)
	second.answer(1)
	if now := daemonPID(t); now != daemon {
		t.Errorf("daemon %d, was %d", now, daemon)
	}
}

// A daemon whose binary was replaced or removed is reported, and restart runs the new one.
func TestReplacedBinaryIsReported(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	env := append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(v.dir, "xdg"), "XDG_RUNTIME_DIR=", "LEASEHOLD_SOCKET="+v.socket())
	binary := v.binary
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(binary, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("leasehold %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("actor", "add", "--name", "lead", "--role", "root")
	t.Cleanup(func() { run("stop") })
	if out := run("status"); strings.Contains(out, "replaced") {
		t.Errorf("at once:\n%s", out)
	}
	text, err := os.ReadFile(v.binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(v.binary+".new", text, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(v.binary+".new", v.binary); err != nil {
		t.Fatal(err)
	}
	first, _ := place.ReadRecord(filepath.Join(v.dir, "xdg", "leasehold"))
	if out := run("status"); !strings.Contains(out, "has been replaced since: leasehold restart") {
		t.Errorf("after the replacement:\n%s", out)
	}
	if out := run("doctor"); !strings.Contains(out, "has been replaced") {
		t.Errorf("doctor:\n%s", out)
	}
	if out := run("restart"); strings.Contains(out, "replaced") {
		t.Errorf("after the restart:\n%s", out)
	}
	second, ok := place.ReadRecord(filepath.Join(v.dir, "xdg", "leasehold"))
	if !ok || second.PID == first.PID || !second.Alive() || !second.OnDemand {
		t.Errorf("restarted %+v, was %+v", second, first)
	}

	// go run removes what it has built.
	binary += ".new"
	if err := os.Rename(v.binary, binary); err != nil {
		t.Fatal(err)
	}
	if out := run("status"); !strings.Contains(out, v.binary+" has been removed since: leasehold restart") || strings.Contains(out, "replaced") {
		t.Errorf("after the removal:\n%s", out)
	}
	if out := run("doctor"); !strings.Contains(out, v.binary+" has been removed since") {
		t.Errorf("doctor:\n%s", out)
	}
	if out := run("restart"); strings.Contains(out, "removed") {
		t.Errorf("after the second restart:\n%s", out)
	}
}
