package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// The state is lost under a client that lives: it is removed, or a copy of it takes its
// place. The client's next answer says what that means, once; one whose daemon was only
// killed reads nothing. An actor whose token is gone as well is told with the refusal.
func TestAClientWhoseStateIsLostIsTold(t *testing.T) {
	t.Parallel()
	newDir(t)
	state := inDir(t, "state/leasehold")
	backup, aside := inDir(t, "copy"), inDir(t, "aside")
	daemon := startDaemon(t)
	leasehold := func(args ...string) string {
		t.Helper()
		cmd := testProgram(t, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("leasehold %s: %v", strings.Join(args, " "), err)
		}
		return string(out)
	}
	again := func(between func()) {
		t.Helper()
		daemon.Process.Kill()
		daemon.Wait()
		between()
		daemon = startDaemon(t)
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	var added struct{ Token string }
	if err := json.Unmarshal([]byte(leasehold("actor", "add", "--run", "r", "--name", "lead", "--role", "root", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	joined, _ := startShim(t, "--run", "r", "--name", "agent")
	joined.handshake()
	cmd := testProgram(t, "mcp")
	cmd.Env = append(cmd.Env, "LEASEHOLD_TOKEN="+added.Token)
	token := runShimProgram(t, cmd)
	token.handshake()
	told := func(what string, s *stdio, want string) {
		t.Helper()
		for _, want := range []string{want, ""} {
			s.call(1, "lease_list", `{}`)
			line := <-s.lines
			if want == "" && strings.Contains(line, "LEASE_LOST") || !strings.Contains(line, want) {
				t.Errorf("%s, the answer should say %q: %s", what, want, line)
			}
		}
	}
	hold := func(key string) {
		t.Helper()
		for _, s := range []*stdio{joined, token} {
			s.call(2, "run_lease_acquire", `{"key":"`+key+`","mode":"shared","ttl_secs":3600}`)
			s.answer(2)
		}
	}

	hold("early")
	again(func() {})
	told("killed", joined, `"leases":[{`)
	told("killed", token, `"leases":[{`)

	leasehold("backup", backup)
	hold("late")
	again(func() { move(state, aside); move(backup, state) })
	told("a copy", joined, "went on with a copy of its state")
	told("a copy", token, "went on with a copy of its state")

	before := joined.notices.Load()
	again(func() { move(state, inDir(t, "gone")) })
	told("another state", joined, "does not know your earlier session")
	if more := joined.notices.Load() - before; more > 0 {
		t.Errorf("another state: beside its answer it was told by %d notifications", more)
	}
	token.call(1, "lease_list", `{}`)
	if r := token.answer(1); !strings.Contains(r.Result.StructuredContent.Message, "your session has ended too") {
		t.Errorf("with a token that is gone: %+v", r)
	}
}
