package launcher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/pebble"
)

// The test binary is also the watchdog of the runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "watchdog" {
		grace, _ := time.ParseDuration(os.Args[5])
		if _, err := process.RunWatchdog(context.Background(), os.Stdin, os.Stdout, os.Args[3], grace, time.Minute); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if signal.Ignored(os.Interrupt) { // as a script's & makes it; agents would inherit that
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	os.Exit(m.Run())
}

// A house is where runs are dispatched: a daemon that can be stopped, and
// directories.
type house struct {
	t      *testing.T
	dir    string
	socket string
	fs     vfs.FS
	stop   func() // the daemon; nil: none runs
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir, err := os.MkdirTemp("", "house") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, dir: dir, socket: filepath.Join(dir, "s"), fs: vfs.NewMem()}
	t.Cleanup(func() {
		h.close()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	h.open()
	return h
}

// open starts the daemon.
func (h *house) open() {
	h.t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: h.fs})
	if err != nil {
		h.t.Fatal(err)
	}
	state, err := dispatch.Open(context.Background(), eng, dispatch.Options{})
	if err != nil {
		h.t.Fatal(err)
	}
	ln, err := server.ListenSocket(h.socket)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, part := range []func() error{
		func() error { return state.Tend(ctx) },
		func() error { return server.New(state, server.Options{}).ServeSocket(ctx, ln) },
	} {
		wg.Go(func() {
			if err := part(); err != nil && ctx.Err() == nil {
				h.t.Error(err)
			}
		})
	}
	h.stop = func() {
		stop()
		wg.Wait()
		if err := eng.Close(); err != nil {
			h.t.Error(err)
		}
	}
}

func (h *house) close() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

func (h *house) connect(ctx context.Context) (*client.Client, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "unix", h.socket)
	if err != nil {
		return nil, err
	}
	return client.Connect(ctx, nc, server.Hello{Operator: true}, "launcher", "test")
}

// A dispatched is a run that goes on.
type dispatched struct {
	*house
	directory  *launcher.Directory
	interrupts chan struct{}
	events     chan launcher.Event
	done       chan struct{}
	summary    launcher.Summary
	err        error
}

// dispatch begins a run whose root is a shell script.
func (h *house) dispatch(name, script string, change ...func(*launcher.Options)) *dispatched {
	h.t.Helper()
	text := fmt.Sprintf("[run]\nname = %q\ndrain_grace_secs = 1\n[agents.sh]\nextends = \"command\"\ncommand = [\"sh\", \"-c\", '''%s''']\n[root]\nagent = \"sh\"\nprompt = \"go\"\n", name, script)
	m, err := manifest.Parse("test.toml", []byte(text), h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	directory, err := launcher.NewDirectory(filepath.Join(h.dir, "runs"), name, time.Now())
	if err != nil {
		h.t.Fatal(err)
	}
	d := &dispatched{
		house: h, directory: directory, interrupts: make(chan struct{}, 8),
		events: make(chan launcher.Event, 1000), done: make(chan struct{}),
	}
	opts := launcher.Options{
		Manifest: m, Directory: directory, Leasehold: os.Args[0], Socket: h.socket,
		Connect: h.connect, Interrupts: d.interrupts, Events: func(e launcher.Event) { d.events <- e },
	}
	for _, c := range change {
		c(&opts)
	}
	go func() {
		defer close(d.done)
		d.summary, d.err = launcher.Run(context.Background(), opts)
	}()
	h.t.Cleanup(func() {
		for range 3 {
			d.interrupts <- struct{}{}
		}
		<-d.done
	})
	return d
}

func (d *dispatched) await(kind string) launcher.Event {
	d.t.Helper()
	for {
		select {
		case e := <-d.events:
			if e.Event == kind {
				return e
			}
		case <-d.done:
			d.t.Fatalf("the run is over (%v) without %s", d.err, kind)
		}
	}
}

func (d *dispatched) end() (launcher.Summary, error) {
	<-d.done
	return d.summary, d.err
}

func (d *dispatched) gone(pid int) {
	d.t.Helper()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		d.t.Errorf("process %d is left: %v", pid, err)
	}
}

// What a run leaves is its directory, for its user alone, without a secret.
func TestRunLeavesItsDirectoryAlone(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("whole", `echo "$LEASEHOLD_TOKEN" "$LEASEHOLD_SESSION" > secrets; echo done`)
	s, err := d.end()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Actors) != 1 || s.Actors[0].Status != "succeeded" || string(s.Actors[0].Result) != `"done"` {
		t.Errorf("summary: %+v", s)
	}
	secrets, err := os.ReadFile(filepath.Join(h.dir, "secrets"))
	if err != nil || len(strings.Fields(string(secrets))) != 2 {
		t.Fatalf("secrets: %q, %v", secrets, err)
	}
	seen := map[string]bool{}
	err = filepath.WalkDir(d.directory.Path, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 && e.Type() != fs.ModeSymlink {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if !e.Type().IsRegular() {
			return nil
		}
		seen[e.Name()] = true
		text, err := os.ReadFile(path)
		for secret := range strings.FieldsSeq(string(secrets)) {
			if strings.Contains(string(text), secret) {
				t.Errorf("a secret stands in %s", path)
			}
		}
		return err
	})
	for _, name := range []string{"manifest.toml", "run.json", "events.jsonl", "summary.json", "stdout.log", "stderr.log"} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// An interrupt is heard also while there is no daemon to begin with, and
// leaves nothing.
func TestInterruptBeforeTheRunBegins(t *testing.T) {
	h := newHouse(t)
	h.close()
	trying := make(chan struct{})
	d := h.dispatch("early", "true", func(o *launcher.Options) {
		o.Connect = func(ctx context.Context) (*client.Client, error) {
			close(trying)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
	})
	<-trying
	d.interrupts <- struct{}{}
	s, err := d.end()
	if !errors.Is(err, launcher.ErrInterrupted) || !s.Interrupted {
		t.Errorf("error %v, interrupted %v", err, s.Interrupted)
	}
	if _, err := os.Stat(d.directory.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of a run that never was: %v", err)
	}
}

// A run whose manifest limits its time is stopped after that, and has failed.
func TestRunEndsWhenItsTimeIsUp(t *testing.T) {
	d := newHouse(t).dispatch("slow", "sleep 1000", func(o *launcher.Options) { o.Manifest.Run.TimeoutSecs = 0.1 })
	s, err := d.end()
	if err != nil || s.Interrupted || !s.Failed() || s.Actors[0].Status != "cancelled" || s.Actors[0].Cause != "the run's time was up" {
		t.Errorf("error %v, summary %+v", err, s)
	}
}

// The launcher of a further machine hears an interrupt while it waits for a run, also if
// the daemon has gone meanwhile.
func TestInterruptEndsALauncherThatWaitsForADaemon(t *testing.T) {
	h := newHouse(t)
	waiting, trying, interrupts := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	s := launcher.Service{
		Run: "later", Machine: "m", Base: filepath.Join(h.dir, "runs"), Work: h.dir,
		Waiting: func(string) { close(waiting) },
	}
	attempts := 0
	s.Leasehold, s.Socket, s.Interrupts = os.Args[0], h.socket, interrupts
	s.Connect = func(ctx context.Context) (*client.Client, error) {
		if attempts++; attempts == 1 {
			return h.connect(ctx)
		}
		if attempts == 2 {
			close(trying)
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	go func() {
		<-waiting
		h.close()
		<-trying
		interrupts <- struct{}{}
	}()
	if interrupted, err := launcher.Serve(context.Background(), s); !interrupted || !errors.Is(err, launcher.ErrInterrupted) {
		t.Errorf("interrupted %v, error %v", interrupted, err)
	}
}

// A run that is refused leaves no directory: the last one of that name is that
// of the run under way, which --resume and people look for.
func TestRefusedRunLeavesNoDirectory(t *testing.T) {
	h := newHouse(t)
	first := h.dispatch("twice", "sleep 1000")
	first.await(launcher.ActorStarted)
	second := h.dispatch("twice", "true")
	var refusal *client.Refusal
	if _, err := second.end(); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "already dispatched by process") {
		t.Errorf("error %v", err)
	}
	found, err := launcher.FindDirectory(filepath.Join(h.dir, "runs"), "twice")
	if err != nil || found.Path != first.directory.Path {
		t.Errorf("found %v, %v; want %s", found, err, first.directory.Path)
	}
}

// Two processes that resume a run at the same time both read that its dispatcher is
// gone. Only one dispatches it. The other changes nothing: it ends no process, and
// writes neither run.json nor events.
func TestOnlyOneProcessDispatchesARun(t *testing.T) {
	h := newHouse(t)
	first := h.dispatch("shared", "while ! [ -e go ]; do sleep 0.05; done; echo once")
	first.await(launcher.ActorStarted)
	file, err := first.directory.RunFile()
	if err != nil {
		t.Fatal(err)
	}
	file.Dispatcher = process.Peer{PID: os.Getpid(), Start: "another process of this pid"}
	put(t, first.directory, file) // as the second process reads it
	resume := func(o *launcher.Options) { o.Directory, o.Resume = first.directory.Again(), true }
	second := h.dispatch("shared", "true", resume)
	if _, err := second.end(); err == nil || !strings.Contains(err.Error(), "run shared is dispatched by another process") {
		t.Errorf("the second one: %v", err)
	}
	if now, err := first.directory.RunFile(); err != nil || now != file {
		t.Errorf("run.json is now %+v, %v", now, err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := first.end(); err != nil || s.Actors[0].Status != "succeeded" || string(s.Actors[0].Result) != `"once"` {
		t.Errorf("error %v, summary %+v", err, s)
	}
	third := h.dispatch("shared", "true", resume)
	if _, err := third.end(); err == nil || !strings.Contains(err.Error(), "run shared is over: its summary is in") {
		t.Errorf("one that had looked before the run was over: %v", err)
	}
}

// A run whose dispatcher was killed can be resumed at once, although the daemon may notice
// the end of that dispatcher only then.
func TestAResumeOutlastsTheConnectionOfTheDispatcher(t *testing.T) {
	h := newHouse(t)
	before, err := h.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	answer, err := before.Call(t.Context(), "operator_run_dispatch", map[string]any{"run": "early", "root": map[string]any{"name": "root", "agent": "sh", "prompt": "go"}, "agents": []string{"sh"}})
	if err != nil {
		t.Fatal(err)
	}
	var begun struct{ Root string }
	if err := json.Unmarshal(answer.Object, &begun); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Call(t.Context(), "operator_launch_exited", map[string]any{"run": "early", "actor_id": begun.Root, "status": "failed"}); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	d := h.dispatch("early", "echo resumed", func(o *launcher.Options) {
		put(t, o.Directory, launcher.RunFile{Dispatcher: process.Peer{PID: os.Getpid(), Start: "another process of this pid"}})
		o.Resume = true
		o.Connect = func(ctx context.Context) (*client.Client, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, "unix", h.socket)
			if err != nil {
				return nil, err
			}
			return client.Connect(ctx, overheard{nc, func(heard []byte) {
				if bytes.Contains(heard, []byte("is already dispatched")) {
					once.Do(func() { _ = before.Close() })
				}
			}}, server.Hello{Operator: true}, "launcher", "test")
		}
	})
	if s, err := d.end(); err != nil || len(s.Actors) != 1 || string(s.Actors[0].Result) != `"resumed"` {
		t.Errorf("error %v, summary %+v", err, s)
	}
	once.Do(func() { t.Error("the daemon had noticed it") })
}

// An overheard connection shows what is read from it.
type overheard struct {
	net.Conn
	heard func([]byte)
}

func (o overheard) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	o.heard(p[:n])
	return n, err
}

// Ctrl-C also reaches a process that is just being started, and has no session of its
// own yet. systemd sends SIGTERM to the agents, too. They have not failed.
func TestAgentThatAnInterruptEndsHasNotFailed(t *testing.T) {
	for _, signal := range []string{"INT", "TERM"} {
		t.Run(signal, func(t *testing.T) { interruptAgent(t, signal) })
	}
}

func interruptAgent(t *testing.T, signal string) {
	h := newHouse(t)
	d := h.dispatch("struck", "while ! [ -e go ]; do sleep 0.05; done; kill -"+signal+" $$", func(o *launcher.Options) {
		m := *o.Manifest
		m.Run.DrainGraceSecs = 600
		o.Manifest = &m
	})
	d.await(launcher.ActorStarted)
	d.interrupts <- struct{}{}
	d.await(launcher.Draining)
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := d.end()
	if err != nil || s.Actors[0].Status != "cancelled" || s.Actors[0].Cause != "the run was interrupted" || s.Actors[0].Signal != "SIG"+signal {
		t.Errorf("error %v, summary %+v", err, s)
	}
}

// While the daemon is away interrupts end agents all the same, and the third
// does not wait for it.
func TestInterruptsWithoutDaemonEndTheAgents(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("alone", "trap '' TERM; sleep 1000 & wait; sleep 1000")
	pid := d.await(launcher.ActorStarted).PID
	h.close()
	d.await(launcher.DaemonLost)
	d.interrupts <- struct{}{}
	d.await(launcher.Draining)
	d.interrupts <- struct{}{}
	d.await(launcher.ActorStopping)
	d.interrupts <- struct{}{}
	s, err := d.end()
	if !errors.Is(err, launcher.ErrDaemonGone) || !s.Interrupted {
		t.Errorf("error %v, interrupted %v", err, s.Interrupted)
	}
	d.gone(pid)
	if d.directory.Finished() {
		t.Error("a run that the daemon does not know to be over has a summary")
	}
}

// A stillConn delivers nothing once its daemon stands still.
type stillConn struct {
	net.Conn
	still  <-chan struct{}
	closed context.Context
	close  context.CancelFunc
}

func (c stillConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.still:
		<-c.closed.Done()
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c stillConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// An interrupted run whose processes have ended says that it waits for a daemon that stands
// still, and does not wait for long.
func TestAnInterruptedRunGivesUpADaemonThatStandsStill(t *testing.T) {
	h, still := newHouse(t), make(chan struct{})
	d := h.dispatch("still", "sleep 1000", func(o *launcher.Options) {
		o.Connect = func(ctx context.Context) (*client.Client, error) {
			nc, err := net.Dial("unix", h.socket)
			if err != nil {
				return nil, err
			}
			c := stillConn{Conn: nc, still: still}
			c.closed, c.close = context.WithCancel(context.Background())
			return client.Connect(ctx, c, server.Hello{Operator: true}, "launcher", "test")
		}
	})
	pid := d.await(launcher.ActorStarted).PID
	close(still)
	d.interrupts <- struct{}{}
	d.await(launcher.ActorStopping)
	if e := d.await(launcher.Draining); !strings.Contains(e.Text, "the daemon has not answered yet, and is waited for 6s at most") {
		t.Errorf("it says %q", e.Text)
	}
	d.gone(pid)
	if s, err := d.end(); !errors.Is(err, launcher.ErrDaemonGone) || !s.Interrupted {
		t.Errorf("error %v, interrupted %v", err, s.Interrupted)
	}
}

// A daemon that comes back learns how agents ended that ended meanwhile.
func TestExitWithoutDaemonIsReportedWhenItIsBack(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("patient", "while ! [ -e go ]; do sleep 0.05; done; echo late")
	pid := d.await(launcher.ActorStarted).PID
	h.close()
	d.await(launcher.DaemonLost)
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pid, 0) == nil { // until it is reaped
		runtime.Gosched()
	}
	h.open()
	s, err := d.end()
	if err != nil || s.Actors[0].Status != "succeeded" || string(s.Actors[0].Result) != `"late"` {
		t.Errorf("error %v, summary %+v", err, s)
	}
}

// A watchdog that somebody kills is replaced, and the run goes on.
func TestKilledWatchdogIsReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for the watchdog in /proc")
	}
	h := newHouse(t)
	d := h.dispatch("watched", "while ! [ -e go ]; do sleep 0.05; done")
	d.await(launcher.ActorStarted)
	first := watchdog(t, d, 0)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if second := watchdog(t, d, first); second == first {
		t.Errorf("the watchdog is still %d", first)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := d.end(); err != nil || s.Actors[0].Status != "succeeded" {
		t.Errorf("error %v, summary %+v", err, s)
	}
}

// watchdog is the pid of the run's watchdog, as soon as there is one that is
// not the one before.
func watchdog(t *testing.T, d *dispatched, before int) int {
	t.Helper()
	file, err := d.directory.RunFile()
	if err != nil {
		t.Fatal(err)
	}
	for t.Context().Err() == nil {
		out, _ := exec.Command("sh", "-c", `for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $f 2>/dev/null | grep -q " watchdog --mark LEASEHOLD_LAUNCHER=$1" && echo $f; done`, "sh", file.Instance).Output()
		for line := range strings.Lines(string(out)) {
			if pid, err := strconv.Atoi(strings.Split(line, "/")[2]); err == nil && pid != before {
				return pid
			}
		}
	}
	return before
}

// A run whose root is ended from outside is not finished, and whatever waits for its
// success must not go on.
func TestRunWhoseRootIsCancelledHasFailed(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("cut", "sleep 600")
	d.await(launcher.ActorStarted)
	operator, err := h.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer operator.Close()
	end := map[string]any{"run": "cut", "path": "root", "reason": "no longer wanted"}
	if a, err := operator.Call(t.Context(), "operator_actor_end", end); err != nil {
		t.Fatal(a, err)
	}
	if s, err := d.end(); err != nil || s.Actors[0].Status != "cancelled" || !s.Failed() || s.Interrupted {
		t.Errorf("error %v, summary %+v", err, s)
	}
}

// An agent that cannot be started is told of, and its run is over.
func TestAgentThatCannotBeStarted(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("nowhere", "true", func(o *launcher.Options) {
		root := *o.Manifest
		root.Root.Directory = filepath.Join(h.dir, "not-there")
		o.Manifest = &root
	})
	s, err := d.end()
	if err != nil || s.Actors[0].Status != "spawn_failed" || !strings.Contains(s.Actors[0].Cause, "not-there") || !s.Failed() {
		t.Errorf("error %v, summary %+v", err, s)
	}
	text, err := os.ReadFile(filepath.Join(d.directory.Path, "summary.json"))
	if err != nil || !json.Valid(text) {
		t.Errorf("summary.json: %v %s", err, text)
	}
}

// Of a script without a first line, or with a wrong one, and of a program for another
// system, the system says only that it has a wrong format, or is not there.
func TestScriptThatCannotBeStartedIsToldWhy(t *testing.T) {
	h := newHouse(t)
	program, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"echo hello\n":                "exec format error: a script must begin with a line such as #!/bin/sh",
		"#!/bin/sh\r\necho hello\r\n": `begins with "#!/bin/sh\r": no program has that name: save it with the line ends of Unix`,
	}
	if elsewhere := strings.ReplaceAll(string(binary), "/ld-", "/no-"); elsewhere != string(binary) { // if it has a loader
		texts[elsewhere] = "no such file or directory: the file is there, but not the loader that it needs"
	}
	for text, want := range texts {
		d := h.dispatch("script", "true", func(o *launcher.Options) {
			script := filepath.Join(h.dir, "agent.sh")
			if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			m := *o.Manifest
			m.Agents = map[string]agent.Profile{"sh": {Command: []string{script}}}
			o.Manifest = &m
		})
		if s, err := d.end(); err != nil || s.Actors[0].Status != "spawn_failed" || !strings.Contains(s.Actors[0].Cause, want) {
			t.Errorf("%.20q: error %v, summary %+v", text, err, s)
		}
	}
}

// TestCauseOfFailureIsInWords: the cause of a failure is the last line, without the data
// and the advice that our own command prints after it. Data alone is no cause.
func TestCauseOfFailureIsInWords(t *testing.T) {
	refused := `key must be given
{"argument":"key","code":"INVALID_ARGUMENT"}
`
	told := `key must be given {"argument":"key","code":"INVALID_ARGUMENT"}`
	for said, want := range map[string]string{
		refused:                          told,
		refused + "hint: see the book\n": told,
		"leasehold: " + refused + "hint: see the book\n":                    "leasehold: key must be given",
		refused + "it went wrong\n":                                         "it went wrong",
		"begun\n" + `{"level":"fatal","code":7}`:                            `{"level":"fatal","code":7}`,
		"begun\n" + `{"code":"ENOSPC","message":"no space"}`:                `begun {"code":"ENOSPC","message":"no space"}`,
		`{"level":"info"}` + "\n" + `{"code":"ENOENT"}`:                     `{"code":"ENOENT"}`,
		"begun\n" + `ERROR: {` + "\n" + `  "code": "DENIED"` + "\n" + `}`:   `ERROR: { "code": "DENIED" }`,
		"begun\n{\n" + `  "error": {` + "\n" + `    "code": 5` + "\n  }\n}": `{ "error": { "code": 5 } }`,
	} {
		d := newHouse(t).dispatch("said", "cat >&2 <<'.'\n"+said+"\n.\nexit 3")
		if s, err := d.end(); err != nil || s.Actors[0].Cause != "exit code 3: "+want {
			t.Errorf("%q: error %v, summary %+v", said, err, s)
		}
	}
}

// TestOutputOfAnAgentIsBounded: an agent that writes without end fills two files
// and no more, and what it writes last is still its result.
func TestOutputOfAnAgentIsBounded(t *testing.T) {
	const most = 32 << 20
	h := newHouse(t)
	d := h.dispatch("talkative", `
		out=$LEASEHOLD_RUN_DIR/actors/root/stdout.log
		for i in 1 2; do
			yes "line of the ${i}th time" | head -c 40000000
			while ! grep -q "of the ${i}th" "$out.old" || [ "$(wc -c <"$out")" -gt 33554432 ]; do sleep 0.05; done # it is being copied
		done
		echo done
		yes ill | head -c 40000000 >&2
		echo "it went wrong" >&2
		exit 3`)
	s, err := d.end()
	if err != nil || s.Actors[0].Status != "failed" || !strings.HasSuffix(s.Actors[0].Cause, ": it went wrong") {
		t.Errorf("error %v, summary %+v", err, s)
	}
	if !strings.HasSuffix(string(s.Actors[0].Result), `done"`) {
		t.Errorf("its output ends with %.50q", string(s.Actors[0].Result)[max(0, len(string(s.Actors[0].Result))-50):])
	}
	for _, name := range []string{"stdout.log", "stdout.log.old", "stderr.log", "stderr.log.old"} {
		info, err := os.Stat(filepath.Join(d.directory.Path, "actors", "root", name))
		if err != nil || info.Size() > 2*most {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if info, err := os.Stat(filepath.Join(d.directory.Path, "actors", "root", "stdout.log")); err != nil || info.Size() > most {
		t.Errorf("stdout.log: %v, %v", info, err)
	}
}
