package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/shim"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// The test binary is the command as well, in a test's own place, and a client
// that can be killed.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "client":
		if err := testClient(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && os.Args[1] == "attack":
		if err := attackMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && os.Args[1] == "chaos-agent":
		if err := chaosAgent(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	case len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-"): // a command; go test gives only flags
		os.Setenv("XDG_STATE_HOME", ownDir("state"))
		os.Setenv("LEASEHOLD_SOCKET", ownDir("s"))
		main()
	default:
		postgrestest.Main(tests{m})
	}
}

// dirEnv tells the programs of a test where to keep everything.
const dirEnv = "LEASEHOLD_TEST_DIR"

// ownDir is a path in the directory of the test that started this program.
func ownDir(name string) string { return filepath.Join(os.Getenv(dirEnv), name) }

// A testDir is where the programs of a test keep everything, and the variables that they
// get besides.
type testDir struct {
	path string
	env  []string
}

// testDirs are those of the tests that run now, by the name of the test. Tests run in
// parallel, so the variables cannot be those of this process.
var testDirs sync.Map

// testDirOf is the directory of a test or of the test that it is a part of.
func testDirOf(t testing.TB) testDir {
	t.Helper()
	for name := t.Name(); ; {
		if dir, made := testDirs.Load(name); made {
			return dir.(testDir)
		}
		last := strings.LastIndexByte(name, '/')
		if last < 0 {
			t.Fatal("the test has not called newDir")
		}
		name = name[:last]
	}
}

// inDir is a path in the directory of a test.
func inDir(t testing.TB, name string) string {
	t.Helper()
	return filepath.Join(testDirOf(t).path, name)
}

// environOf is what the programs of a test get.
func environOf(t testing.TB) []string {
	t.Helper()
	dir := testDirOf(t)
	return append(append(os.Environ(), dirEnv+"="+dir.path), dir.env...)
}

// testProgram is the command, or another program of TestMain, as part of a test.
func testProgram(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = environOf(t)
	return cmd
}

// daemonLog is the log of a daemon that a shim started.
func daemonLog(t testing.TB) string { return inDir(t, "state/leasehold/daemon.log") }

// testClient takes the leases a and b, blocks in an acquire of c, and says so.
func testClient() error {
	ctx := context.Background()
	cs, err := connectSDK(ctx, "victim", exec.CommandContext(ctx, os.Args[0], "mcp"))
	if err != nil {
		return err
	}
	for tool, args := range map[string]map[string]any{
		"run_lease_acquire": {"key": "a"}, "lease_acquire": {"name": "b"},
	} {
		if res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args}); err != nil || res.IsError {
			return fmt.Errorf("%s: %v %+v", tool, err, res)
		}
	}
	fmt.Println("ready")
	_, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "run_lease_acquire", Arguments: map[string]any{"key": "c", "wait_secs": 50}})
	return err
}

// connectSDK connects the official Go SDK's client through a shim process.
func connectSDK(ctx context.Context, name string, shim *exec.Cmd) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "1"}, nil)
	return client.Connect(ctx, &mcp.CommandTransport{Command: shim}, nil)
}

// newDir gives a test's programs a directory of their own, and variables, and ends what
// they start there.
func newDir(t *testing.T, env ...string) {
	t.Helper()
	dir := shortDir(t)
	testDirs.Store(t.Name(), testDir{dir, env})
	t.Cleanup(func() {
		defer testDirs.Delete(t.Name())
		if pid := daemonPID(t); pid != 0 {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if t.Failed() {
			log, _ := os.ReadFile(daemonLog(t))
			t.Logf("the daemon's log:\n%s", log)
		}
	})
}

// daemonPID is the process that listens; 0 if none does.
func daemonPID(t testing.TB) int { return listenerOf(inDir(t, "s")) }

// listenerOf is the process that listens at a socket; 0 if none does.
func listenerOf(socket string) int {
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return 0
	}
	defer nc.Close()
	pid, _ := server.PeerPID(nc)
	return pid
}

// target is the daemon of a test.
func target(t testing.TB) place.Target {
	return place.Target{Socket: inDir(t, "s"), Named: true, State: inDir(t, "state/leasehold")}
}

// startDaemon starts a daemon by hand, and returns it once it listens.
func startDaemon(t *testing.T, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := testProgram(t, append([]string{"serve"}, flags...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	awaitTrue(t, "the daemon listens", func() bool { return daemonPID(t) == cmd.Process.Pid })
	return cmd
}

func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

// A stdio is a shim and the client's end of it.
type stdio struct {
	t     *testing.T
	in    io.WriteCloser
	lines chan string
	ended chan struct{}

	notices atomic.Int64 // that came before the lines
}

// runShim runs a shim in this process.
func runShim(t *testing.T, cfg shim.Config) *stdio {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	s := &stdio{t: t, in: inW, lines: make(chan string, 1000), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		defer outW.Close()
		shim.Run(ctx, cfg, inR, outW, logWriter{t})
	}()
	go s.read(outR)
	t.Cleanup(func() { cancel(); inW.Close(); <-s.ended })
	return s
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}

// startShim runs a shim as a process.
func startShim(t *testing.T, args ...string) (*stdio, *exec.Cmd) {
	t.Helper()
	cmd := testProgram(t, append([]string{"mcp"}, args...)...)
	return runShimProgram(t, cmd), cmd
}

// runShimProgram runs a shim that may have more variables.
func runShimProgram(t *testing.T, cmd *exec.Cmd) *stdio {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, out := pipes(t, cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &stdio{t: t, in: in, lines: make(chan string, 1000), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.read(out)
		cmd.Wait()
	}()
	t.Cleanup(func() { cmd.Process.Kill(); <-s.ended })
	return s
}

// pipes are the client's ends of a program that it is about to start.
func pipes(t *testing.T, cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	return in, out
}

func (s *stdio) read(out io.Reader) {
	for br := bufio.NewReader(out); ; {
		line, err := br.ReadString('\n')
		if err != nil {
			close(s.lines)
			return
		}
		// A notice, such as that somebody waits, comes between any two answers.
		if strings.Contains(line, `"method":"notifications/message"`) {
			s.notices.Add(1)
			continue
		}
		s.lines <- line
	}
}

func (s *stdio) send(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.in, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stdio) call(id int, tool, arguments string) {
	s.t.Helper()
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, arguments))
}

// A reply is what tests look at in a message of the shim.
type reply struct {
	ID     json.RawMessage
	Method string
	Result struct {
		IsError           bool
		StructuredContent struct {
			Code      string
			Message   string
			Key       string
			LeaseID   string `json:"lease_id"`
			Token     uint64
			Reentrant bool
			Released  bool
		}
		ServerInfo struct{ Name string }
	}
	Error *struct {
		Code    int
		Message string
	}
}

func (s *stdio) receive() reply {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatal("the shim has ended")
		}
		var r reply
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Fatalf("%v in %s", err, line)
		}
		return r
	case <-time.After(patience):
		s.t.Fatal("no answer")
		return reply{}
	}
}

// answer expects the answer to request id next.
func (s *stdio) answer(id int) reply {
	s.t.Helper()
	r := s.receive()
	if string(r.ID) != fmt.Sprint(id) || r.Error != nil {
		s.t.Fatalf("not the answer to %d: %+v %+v", id, r, r.Error)
	}
	return r
}

// silent fails if there is something to read.
func (s *stdio) silent() {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if ok {
			s.t.Errorf("unexpected: %s", line)
		}
	default:
	}
}

const initializeLine = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"Test Client","version":"1"}}}`

func (s *stdio) handshake() {
	s.t.Helper()
	s.send(initializeLine)
	if r := s.answer(0); r.Result.ServerInfo.Name != "leasehold" {
		s.t.Fatalf("initialize: %+v", r)
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}
