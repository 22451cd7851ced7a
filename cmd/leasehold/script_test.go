package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/engine/postgres/postgrestest"
)

// Each script in testdata is a session of a person or a program with the real
// binary, with a home of its own. Besides testscript's commands it has
//
//	actor VAR FLAG...       adds an actor: VAR is its token, VAR_ID its id
//	session VAR TOKEN       opens a session and keeps it: VAR is its handle
//	hangup VAR              ends the connection of that session
//	start NAME ARG...       runs leasehold in the background
//	say NAME FILE           writes the file to its standard input
//	capture VAR NAME REGEXP waits until it has printed that: VAR is its group
//	capture VAR - REGEXP    the same of what the last program has printed
//	capture VAR             VAR is what the last program has printed
//	certify                 makes ca.pem, and cert.pem with key.pem for 127.0.0.1
//	until NAME REGEXP       waits until it has printed that
//	signal NAME SIGNAL      sends it INT, TERM, HUP or KILL
//	ended NAME CODE         waits for its end; its output is in NAME.stdout and NAME.stderr
//	exits CODE PROGRAM ...  is exec with an exit code to check
//	await REGEXP ARG...     runs leasehold after each change until it prints that
//	corrupt KEY             spoils a record of the state
//	fits WIDTH              fails if a line of the last output is wider than that
//	database VAR            makes a database: VAR is its DSN
//	tmpfs DIR SIZE          mounts a file system of that size, where [tmpfs] can
//	wall DURATION [RUN]     opens the state on a machine whose wall clock is off,
//	                        and ends the run
func TestScripts(t *testing.T) {
	t.Parallel()
	binary := leaseholdIn(t, t.TempDir())
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			sc := &script{binary: binary, processes: map[string]*background{}, sessions: map[string]*client.Client{}}
			env.Values[scriptKey{}] = sc
			env.Defer(sc.close)
			runtime, err := os.MkdirTemp("", "lh") // the work directory is too long for a socket
			if err != nil {
				return err
			}
			socket := filepath.Join(runtime, "leasehold", "leasehold.sock")
			env.Defer(func() {
				filepath.WalkDir(env.WorkDir, func(path string, _ fs.DirEntry, _ error) error {
					if r, ok := place.ReadRecord(path); ok && r.Alive() { // started on demand
						syscall.Kill(r.PID, syscall.SIGTERM)
					}
					return nil
				})
				os.RemoveAll(runtime)
			})
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("XDG_RUNTIME_DIR", runtime)
			env.Setenv("SOCKET", socket)
			env.Setenv("LEASEHOLD_RUN", "default") // see project.txt for what it is without
			env.Setenv("EXAMPLES", examples)
			env.Setenv("DB", filepath.Join(env.WorkDir, "state", "leasehold", "db"))
			return nil
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "postgres":
				return postgrestest.Installed() == nil, nil
			case "tmpfs":
				return mountTmpfs(t.TempDir(), "1m", t.Cleanup) == nil, nil
			default:
				return false, fmt.Errorf("no condition %q", name)
			}
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database": func(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], postgrestest.Database(t)) },
			"tmpfs": func(ts *testscript.TestScript, _ bool, args []string) {
				dir := ts.MkAbs(args[0])
				ts.Check(os.Mkdir(dir, 0o700))
				ts.Check(mountTmpfs(dir, args[1], ts.Defer))
			},
			"fits":  fits,
			"actor": addActor, "session": openSession, "hangup": hangUp,
			"certify": certify, "capture": capture, "say": say,
			"start": startProcess, "until": untilPrinted, "signal": signalProcess, "ended": awaitEnd,
			"exits": exits, "await": await, "corrupt": corrupt, "wall": setWall,
		},
	})
}

type scriptKey struct{}

// A script is what one script has under way.
type script struct {
	binary    string
	processes map[string]*background
	sessions  map[string]*client.Client
}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

func (sc *script) close() {
	for _, c := range sc.sessions {
		c.Close()
	}
	for _, p := range sc.processes {
		p.cmd.Process.Kill()
		<-p.ended
	}
}

// environ is what a process gets that the script starts.
func environ(ts *testscript.TestScript) []string {
	var env []string
	for _, name := range []string{
		"PATH", "HOME", "TMPDIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
		"LEASEHOLD_SOCKET", "LEASEHOLD_TOKEN", "LEASEHOLD_SESSION", "LEASEHOLD_RUN", "LEASEHOLD_POSTGRES",
		"LEASEHOLD_SERVER", "LEASEHOLD_SERVER_CA", "LEASEHOLD_TOKEN_FILE",
	} {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return env
}

// patience is how long what a test waits for may take on a machine that has
// much else to do. It decides only when to give up.
const patience = 3 * time.Minute

func addActor(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(scriptOf(ts).binary, append([]string{"actor", "add", "--json"}, args[1:]...)...)
	cmd.Env = environ(ts)
	out, err := cmd.Output()
	ts.Check(err)
	var made struct {
		ActorID string `json:"actor_id"`
		Token   string
	}
	ts.Check(json.Unmarshal(out, &made))
	ts.Setenv(args[0], made.Token)
	ts.Setenv(args[0]+"_ID", made.ActorID)
}

func connectTo(ts *testscript.TestScript, hello server.Hello) (*client.Client, error) {
	nc, err := net.Dial("unix", ts.Getenv("SOCKET"))
	if err != nil {
		return nil, err
	}
	return client.Connect(context.Background(), nc, hello, "script", "")
}

func openSession(ts *testscript.TestScript, _ bool, args []string) {
	c, err := connectTo(ts, server.Hello{Token: args[1]})
	ts.Check(err)
	scriptOf(ts).sessions[args[0]] = c
	ts.Setenv(args[0], c.Handle)
}

func hangUp(ts *testscript.TestScript, _ bool, args []string) {
	scriptOf(ts).sessions[args[0]].Close()
}

// A background is a leasehold in the background.
type background struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stderr bytes.Buffer
	ended  chan struct{}
	err    error

	mu      sync.Mutex
	stdout  []byte
	printed chan struct{} // closed, and made anew, when there is more
}

func (p *background) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stdout = append(p.stdout, b...)
	close(p.printed)
	p.printed = make(chan struct{})
	return len(b), nil
}

func (p *background) output() ([]byte, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stdout, p.printed
}

func startProcess(ts *testscript.TestScript, _ bool, args []string) {
	p := &background{ended: make(chan struct{}), printed: make(chan struct{})}
	p.cmd = exec.Command(scriptOf(ts).binary, args[1:]...)
	p.cmd.Env, p.cmd.Dir = environ(ts), ts.MkAbs(".")
	p.cmd.Stdout, p.cmd.Stderr = p, &p.stderr
	stdin, err := p.cmd.StdinPipe()
	ts.Check(err)
	p.stdin = stdin
	ts.Check(p.cmd.Start())
	ts.Setenv(args[0]+"_PID", strconv.Itoa(p.cmd.Process.Pid))
	scriptOf(ts).processes[args[0]] = p
	go func() { // ends with the process, which close kills
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
}

func untilPrinted(ts *testscript.TestScript, _ bool, args []string) {
	p, want := scriptOf(ts).processes[args[0]], regexp.MustCompile("(?m)"+args[1])
	late := time.After(patience)
	for {
		out, more := p.output()
		if want.Match(out) {
			return
		}
		select {
		case <-late:
			ts.Fatalf("%s has not printed %q:\n%s", args[0], args[1], out)
		case <-more:
		case <-p.ended:
			if out, _ := p.output(); !want.Match(out) {
				ts.Fatalf("%s ended and has not printed %q:\n%s%s", args[0], args[1], out, &p.stderr)
			}
		}
	}
}

func signalProcess(ts *testscript.TestScript, _ bool, args []string) {
	signals := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	sig, known := signals[args[1]]
	if !known {
		ts.Fatalf("no signal %s", args[1])
	}
	ts.Check(scriptOf(ts).processes[args[0]].cmd.Process.Signal(sig))
}

func awaitEnd(ts *testscript.TestScript, _ bool, args []string) {
	p := scriptOf(ts).processes[args[0]]
	select {
	case <-p.ended:
	case <-time.After(patience):
		out, _ := p.output()
		ts.Fatalf("%s has not ended:\n%s", args[0], out)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".stdout"), p.stdout, 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".stderr"), p.stderr.Bytes(), 0o600))
	if code := strconv.Itoa(p.cmd.ProcessState.ExitCode()); code != args[1] {
		ts.Fatalf("%s: exit code %s, want %s: %s%s", args[0], code, args[1], p.stdout, &p.stderr)
	}
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

func await(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile("(?m)" + args[0])
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("it never printed %s", args[0]))
	defer cancel()
	var c *client.Client // each connection looks at once, and then after each change
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for {
		ts.Check(context.Cause(ctx))
		err := error(nil)
		if c == nil {
			c, err = connectTo(ts, server.Hello{Operator: true})
		}
		if err == nil {
			_, err = c.Call(ctx, "operator_watch", nil)
		}
		if err != nil { // servers may just be sharing partitions out anew, which cuts sessions off
			ts.Logf("%v", err)
			if c != nil {
				c.Close()
				c = nil
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		cmd := exec.Command(scriptOf(ts).binary, args[1:]...)
		cmd.Env, cmd.Dir = environ(ts), ts.MkAbs(".")
		out, err := cmd.CombinedOutput()
		if want.Match(out) {
			return
		}
		ts.Logf("%s%v", out, err)
	}
}

func fits(ts *testscript.TestScript, _ bool, args []string) {
	width, err := strconv.Atoi(args[0])
	ts.Check(err)
	for line := range strings.SplitSeq(ts.ReadFile("stdout"), "\n") {
		if w := terminal.Width(line); w > width {
			ts.Fatalf("a line is %d wide: %s", w, line)
		}
	}
}

func corrupt(ts *testscript.TestScript, _ bool, args []string) {
	eng, err := pebble.Open(pebble.Options{Dir: ts.Getenv("DB")})
	ts.Check(err)
	defer eng.Close()
	ts.Check(eng.Update(context.Background(), func(tx engine.Tx) error {
		row, ok := tx.Get(args[0])
		if !ok {
			return fmt.Errorf("no record %q", args[0])
		}
		row.Value = "spoilt"
		tx.Put(row)
		return nil
	}))
}

func setWall(ts *testscript.TestScript, _ bool, args []string) {
	off, err := time.ParseDuration(args[0])
	ts.Check(err)
	c := clock.Machine()
	c.Wall = func() time.Time { return time.Now().Add(off) }
	eng, err := pebble.Open(pebble.Options{Dir: ts.Getenv("DB"), Clock: c})
	ts.Check(err)
	if len(args) > 1 {
		state, err := dispatch.Open(context.Background(), eng, dispatch.Options{Clock: c})
		ts.Check(err)
		ts.Check(state.EndActor(context.Background(), args[1], "root", "done"))
	}
	ts.Check(eng.Close())
}
