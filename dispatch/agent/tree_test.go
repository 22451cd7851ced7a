package agent_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/leasehold/leasehold/dispatch/agent/agenttest"
)

// The real command runs a tree of all four clients. Each acts as its actor
// through the real shim, may do what its role may, and its result and cost are
// in the summary.
func TestATreeOfAllClients(t *testing.T) {
	bin, records := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "leasehold"), "../../cmd/leasehold")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	agenttest.Install(t, bin)
	dir, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	order := func(args map[string]any) string {
		text, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		return "call spawn_worker " + string(text) + "\n"
	}
	held := "call run_lease_acquire {\"key\": \"the port\", \"wait_secs\": 50}\ncall actor_status {\"actor\": \"W1\"}\n"
	prompt := order(map[string]any{"name": "W1", "agent": "codex", "model": "gpt-5-codex", "prompt": held + "say codex is done"}) +
		order(map[string]any{"name": "W2", "agent": "gemini", "prompt": held + "say gemini is done"}) +
		order(map[string]any{"name": "W3", "agent": "opencode", "prompt": held + "say opencode is done\ncost 0.25"}) +
		"call actor_wait {\"actors\": [\"W1\", \"W2\", \"W3\"], \"mode\": \"all\", \"wait_secs\": 50}\n" +
		"call actor_report {\"result\": {\"all\": \"done\"}}\ncost 0.5\n"
	manifest := filepath.Join(dir, "clients.toml")
	text := "[run]\nbudget_usd = 10\n[agents.codex]\n[agents.gemini]\n[agents.opencode]\n[root]\nagent = \"claude\"\nprompt = '''\n" + prompt + "'''\n" +
		"[[leases]]\nscope = \"run\"\nkey = \"the port\"\npurpose = \"to listen\"\n"
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "leasehold"), "dispatch", "--json", "--dir", filepath.Join(dir, "runs"), manifest)
	cmd.Env = []string{
		"PATH=" + bin + ":/usr/bin:/bin", "HOME=" + dir, "TMPDIR=" + dir, "XDG_STATE_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir,
		agenttest.RecordDir + "=" + records,
	}
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	t.Cleanup(func() { endDaemon(t, dir) })
	if err != nil {
		t.Fatalf("%v\n%s\n%s\n%s", err, &out, &said, agentsSaid(dir))
	}

	var last struct {
		Summary struct {
			Actors []struct {
				Path, Status, Agent string
				CostUSD             float64 `json:"cost_usd"`
				Result              json.RawMessage
			}
		}
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	type end struct {
		agent, status, result string
		cost                  float64
	}
	want := map[string]end{
		"root": {"claude", "succeeded", `{"all":"done"}`, 0.5}, "W1": {"codex", "succeeded", `"codex is done"`, 0},
		"W2": {"gemini", "succeeded", `"gemini is done"`, 0}, "W3": {"opencode", "succeeded", `"opencode is done"`, 0.25},
	}
	for _, a := range last.Summary.Actors {
		var result bytes.Buffer
		if err := json.Compact(&result, a.Result); err != nil {
			t.Errorf("%s: %v", a.Path, err)
		}
		if have := (end{a.Agent, a.Status, result.String(), a.CostUSD}); have != want[a.Path] {
			t.Errorf("%s: %+v, want %+v", a.Path, have, want[a.Path])
		}
	}
	if len(last.Summary.Actors) != len(want) {
		t.Errorf("%d actors: %s", len(last.Summary.Actors), lines[len(lines)-1])
	}
	given, err := agenttest.Records(records)
	if err != nil || len(given) != 4 {
		t.Fatalf("%d records: %v", len(given), err)
	}
	for _, g := range given {
		if leads := g.Client == "claude"; slices.Contains(g.Allowed, "spawn_worker") != leads || !slices.Contains(g.Allowed, "run_lease_acquire") {
			t.Errorf("%s may call %v", g.Client, g.Allowed)
		}
		for _, tool := range g.Allowed {
			if !slices.Contains(g.Listed, tool) {
				t.Errorf("%s may call %s, which its server has not", g.Client, tool)
			}
		}
		if !bytes.Contains([]byte(g.Prompt), []byte(`run_lease_acquire with key "the port": to listen`)) {
			t.Errorf("%s does not know of the lease: %s", g.Client, g.Prompt)
		}
	}
}

// agentsSaid returns the output of the agents, to explain a failure.
func agentsSaid(dir string) string {
	out, _ := exec.Command("sh", "-c", "tail -n 20 $(find '"+dir+"/runs' -name '*.log') 2>&1").CombinedOutput()
	return string(out)
}

// endDaemon ends the daemon that was started on demand.
func endDaemon(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "leasehold", "daemon.json"))
	if err != nil {
		t.Error(err)
		return
	}
	var daemon struct{ PID int }
	if err := json.Unmarshal(text, &daemon); err != nil {
		t.Error(err)
		return
	}
	if out, err := exec.Command("kill", "-9", strconv.Itoa(daemon.PID)).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
