package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/agent/agenttest"
)

// The test binary acts as each client. Under the name leasehold it is the MCP
// server that the clients start.
func TestMain(m *testing.M) {
	agenttest.Main()
	if filepath.Base(os.Args[0]) == "leasehold" {
		if err := serve(); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

type variable struct {
	Name string `json:"name"`
}

type value struct {
	Value string `json:"value"`
}

// serve runs an MCP server with tools that are named like Leasehold's. They
// return variables of the environment that the client gave the server.
func serve() error {
	s := mcp.NewServer(&mcp.Implementation{Name: "leasehold", Version: "0"}, nil)
	for _, name := range []string{"kv_get", "kv_set", "spawn_worker"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, v variable) (*mcp.CallToolResult, value, error) {
			return nil, value{os.Getenv(v.Name)}, nil
		})
	}
	return s.Run(context.Background(), &mcp.StdioTransport{})
}

// A stage is a PATH that contains only the four clients and leasehold.
type stage struct {
	bin, records string
	task         agent.Task
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{bin: t.TempDir(), records: t.TempDir()}
	agenttest.Install(t, s.bin)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	leasehold := filepath.Join(s.bin, "leasehold")
	if err := os.Symlink(self, leasehold); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"PATH": s.bin + ":/usr/bin:/bin", agenttest.RecordDir: s.records, "HOME": t.TempDir(), "GEMINI_CLI_HOME": "", "CLAUDECODE": "1",
		"GORACE":          "atexit_sleep_ms=0", // many processes of the test binary exit
		"XDG_STATE_HOME":  "/state",
		"LEASEHOLD_TOKEN": "lht_of_somebody_else", "LEASEHOLD_STRAY": "1",
	} {
		t.Setenv(name, value)
	}
	s.task = agent.Task{
		Run: "build", RunID: "5ca1ab1e-0000-4000-8000-000000000001", ActorID: "5ca1ab1e-0000-4000-8000-000000000002",
		Name: "W1", Path: "S1→W1", Role: "worker", Directory: t.TempDir(), Scratch: filepath.Join(t.TempDir(), "W1"), RunDir: t.TempDir(),
		Leasehold: leasehold, Socket: "/run/leasehold.sock", Token: "lht_" + rand.Text(), Session: "lhs_" + rand.Text(), Life: 2,
		Tools: []string{"kv_get", "kv_set"},
	}
	return s
}

func builtIn(t *testing.T, name string) agent.Profile {
	t.Helper()
	p, ok := agent.BuiltIn(name)
	if !ok {
		t.Fatalf("%s is no built-in", name)
	}
	return p
}

// launch starts what the profile makes of the task, as the dispatcher does.
func (s *stage) launch(t *testing.T, p agent.Profile) (stdout []byte, code int) {
	t.Helper()
	l, err := p.Launch(s.task)
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	cmd := &exec.Cmd{Path: l.Argv[0], Args: l.Argv, Env: l.Env, Dir: l.Dir, Stdin: bytes.NewReader(l.Stdin), Stdout: &out, Stderr: &said}
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if said.Len() > 0 {
		t.Logf("%s says: %s", l.Argv[0], &said)
	}
	return out.Bytes(), cmd.ProcessState.ExitCode()
}

// record returns what the last client was given.
func (s *stage) record(t *testing.T) agenttest.Given {
	t.Helper()
	all, err := agenttest.Records(s.records)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d records, %v", len(all), err)
	}
	if err := os.RemoveAll(s.records); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.records, 0o700); err != nil {
		t.Fatal(err)
	}
	return all[0]
}
