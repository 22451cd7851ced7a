package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

var (
	chaosRounds = flag.Int("chaos.rounds", 0, "how often a dispatch is interrupted, and how often killed; 0: twice and once")
	chaosLarge  = flag.Bool("chaos.large", false, "a tree of 216 workers and 26 leads in place of one of 24 and 6")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "of what agents do and when a dispatch ends; 0: a new one")
)

// A tree of agents that spawn, contend and die at random leaves no process, no
// lease, no waiter, no claim and no worktree but those it tells of, and its
// summary accounts for every actor.
func TestChaoticTreeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	d := newChaos(t)
	widths := []int{2, 2, 6} // 24 workers and 6 leads below the root
	if *chaosLarge {
		widths = []int{2, 3, 3, 12} // 216 and 26
	}
	run := d.start("tree", chaosPrompt{Seed: d.seed, Widths: widths})
	run.wait()
	if run.code != exit.OK && run.code != exit.Failed {
		t.Fatalf("exit code %d\n%s", run.code, run.output())
	}
	s := run.summary()
	d.nothingLeft(run)
	run.accounted(s)
	t.Logf("%d actors in %v: %v", len(s.Actors), s.FinishedAt.Sub(s.StartedAt).Round(time.Millisecond), s.Counts)
}

// So does one that is interrupted, once or again, at any moment: in every third
// round perhaps before the run has begun.
func TestInterruptedTreeLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	d := newChaos(t)
	for round := range cmp.Or(*chaosRounds, 2) {
		run := d.start(fmt.Sprint("interrupted", round), chaosPrompt{Seed: d.seed + uint64(round), Widths: []int{3, 2, 3}})
		if round%3 == 0 {
			run.signalAt(time.Duration(d.rnd.IntN(300))*time.Millisecond, syscall.SIGINT)
		} else {
			run.awaitEvent(launcher.RunStarted)
			run.signalAt(time.Duration(d.rnd.IntN(2000))*time.Millisecond, syscall.SIGINT)
		}
		if round%2 == 1 {
			run.signalAt(time.Duration(d.rnd.IntN(1000))*time.Millisecond, syscall.SIGINT)
		}
		run.wait()
		if !run.has(launcher.RunStarted) {
			run.neverWas()
			t.Logf("round %d: interrupted before the run began", round)
			continue
		}
		d.nothingLeft(run)
		s := run.summary()
		run.accounted(s)
		if want := exit.Interrupted; s.Interrupted && run.code != want {
			t.Fatalf("round %d: exit code %d, want %d\n%s", round, run.code, want, run.output())
		}
		t.Logf("round %d: interrupted %v, %v", round, s.Interrupted, s.Counts)
	}
}

// And one whose dispatcher is killed leaves no process, and can be resumed to
// its end.
func TestKilledDispatcherLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	d := newChaos(t)
	for round := range cmp.Or(*chaosRounds, 1) {
		name := fmt.Sprint("killed", round)
		run := d.start(name, chaosPrompt{Seed: d.seed + uint64(round), Widths: []int{3, 2, 3}, Calm: round%2 == 0})
		run.awaitEvent(launcher.ActorStarted)
		run.signalAt(time.Duration(d.rnd.IntN(2000))*time.Millisecond, syscall.SIGKILL)
		run.wait()
		run.noProcess() // the watchdog
		if _, err := os.Stat(filepath.Join(run.dir(), "summary.json")); err == nil {
			t.Logf("round %d: it was over before it was killed", round)
			continue
		}
		again := d.resume(name, run)
		again.wait()
		s := again.summary()
		d.nothingLeft(again)
		// If the root had succeeded, no more than the summary was left to do.
		if again := s.Actors[0].StartedAt.After(s.StartedAt); s.Life != 2 && (s.Life != 1 || again || s.Actors[0].Status != "succeeded") {
			t.Fatalf("round %d: life %d after a resume", round, s.Life)
		}
		t.Logf("round %d: resumed, %v", round, s.Counts)
	}
}

// A chaos is a place for chaotic runs: a home, a daemon that starts by itself,
// a git repository.
type chaos struct {
	t    *testing.T
	seed uint64
	rnd  *rand.Rand
	home string
	env  []string
}

func newChaos(t *testing.T) *chaos {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	seed := cmp.Or(*chaosSeed, rand.Uint64())
	t.Logf("-chaos.seed=%d", seed)
	v := newVictim(t)
	d := &chaos{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 0)), home: v.dir}
	d.env = append(connection.WithoutSecrets(os.Environ()),
		"XDG_STATE_HOME="+filepath.Join(d.home, "state"), "XDG_RUNTIME_DIR="+d.home,
		"LEASEHOLD_SOCKET="+v.socket(), "PATH="+d.home+":"+os.Getenv("PATH"), "PIPE_SHELL=")
	v.cmd = exec.Command(v.binary, "serve")
	v.cmd.Env, v.cmd.Stderr = d.env, os.Stderr
	v.cmd.Args = append(v.cmd.Args, "--log-level", "error")
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the daemon listens", func() bool {
		_, err := os.Stat(v.socket())
		return err == nil
	})
	d.git("init", "-q", "work")
	d.git("-C", "work", "-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-m", "first")
	return d
}

func (d *chaos) git(args ...string) string {
	d.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = d.home
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// leasehold runs a command to its end.
func (d *chaos) leasehold(args ...string) string {
	d.t.Helper()
	cmd := exec.Command(filepath.Join(d.home, "leasehold"), args...)
	cmd.Env = d.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		d.t.Fatalf("leasehold %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A chaoticRun is one dispatch.
type chaoticRun struct {
	*chaos
	name string
	cmd  *exec.Cmd
	done chan struct{}
	out  string // path
	code int
}

func (d *chaos) start(name string, prompt chaosPrompt) *chaoticRun {
	d.t.Helper()
	text, err := json.Marshal(prompt)
	if err != nil {
		d.t.Fatal(err)
	}
	manifest := fmt.Sprintf(`
[run]
name = %q
max_actors = 400
drain_grace_secs = 1
[agents.chaos]
extends = "command"
command = [%q, "chaos-agent"]
[root]
agent = "chaos"
directory = "work"
timeout_secs = 240
prompt = '%s'
[sublead]
timeout_secs = 30
[worker]
timeout_secs = 10
`, name, os.Args[0], text)
	path := filepath.Join(d.home, name+".toml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return d.run(name, path)
}

func (d *chaos) resume(name string, _ *chaoticRun) *chaoticRun {
	return d.run(name, "--resume", name)
}

func (d *chaos) run(name string, args ...string) *chaoticRun {
	d.t.Helper()
	r := &chaoticRun{chaos: d, name: name, done: make(chan struct{}), out: filepath.Join(d.home, name+".out")}
	out, err := os.OpenFile(r.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer out.Close()
	r.cmd = exec.Command(filepath.Join(d.home, "leasehold"), append([]string{"dispatch", "--json"}, args...)...)
	r.cmd.Env, r.cmd.Dir, r.cmd.Stdout, r.cmd.Stderr = d.env, d.home, out, out
	if err := r.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		_ = r.cmd.Wait()
		r.code = r.cmd.ProcessState.ExitCode()
	}()
	d.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		if d.t.Failed() {
			kept := filepath.Join(os.TempDir(), "chaos-"+r.name+".jsonl")
			_ = os.WriteFile(kept, []byte(r.output()), 0o600)
			d.t.Logf("what %s said is in %s", r.name, kept)
		}
	})
	return r
}

func (r *chaoticRun) wait() { <-r.done }

func (r *chaoticRun) output() string {
	text, _ := os.ReadFile(r.out)
	return string(text)
}

// signalAt sends a signal after a while, unless the run is over by then.
func (r *chaoticRun) signalAt(after time.Duration, s syscall.Signal) {
	select {
	case <-time.After(after):
		_ = r.cmd.Process.Signal(s)
	case <-r.done:
	}
}

func (r *chaoticRun) awaitEvent(kind string) {
	r.t.Helper()
	awaitTrue(r.t, "the run has "+kind, func() bool { return r.has(kind) })
}

// has reports whether the dispatcher has printed an event of that kind.
func (r *chaoticRun) has(kind string) bool {
	return strings.Contains(r.output(), fmt.Sprintf("\"event\":%q", kind))
}

// neverWas looks for what a dispatch could have left that was interrupted
// before its run began: the signal ended the process (-1), or the command.
func (r *chaoticRun) neverWas() {
	r.t.Helper()
	if r.code != exit.Interrupted && r.code != -1 {
		r.t.Errorf("exit code %d\n%s", r.code, r.output())
	}
	if found, _ := filepath.Glob(filepath.Join(r.home, "state", "leasehold", "runs", r.name, "*")); len(found) > 0 {
		r.t.Errorf("directories of a run that never was: %v", found)
	}
	cmd := exec.Command(filepath.Join(r.home, "leasehold"), "tree", "--run", r.name, "--all")
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err == nil {
		r.t.Errorf("the daemon knows a run that never was:\n%s", out)
	}
}

func (r *chaoticRun) dir() string {
	r.t.Helper()
	found, _ := filepath.Glob(filepath.Join(r.home, "state", "leasehold", "runs", r.name, "*"))
	if len(found) != 1 {
		r.t.Fatalf("run directories of %s: %v\n%s", r.name, found, r.output())
	}
	return found[0]
}

func (r *chaoticRun) summary() (s launcher.Summary) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir(), "summary.json"))
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.output())
	}
	if err := json.Unmarshal(text, &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *chaoticRun) mark() string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir(), "run.json"))
	if err != nil {
		r.t.Fatal(err)
	}
	var f launcher.RunFile
	if err := json.Unmarshal(text, &f); err != nil {
		r.t.Fatal(err)
	}
	return "LEASEHOLD_RUN_ID=" + f.RunID
}

func (r *chaoticRun) noProcess() {
	r.t.Helper()
	mark := r.mark()
	awaitTrue(r.t, "no process of the run is left", func() bool { return len(marked(mark)) == 0 })
}

// nothingLeft looks for whatever a run that is over could have left.
func (d *chaos) nothingLeft(r *chaoticRun) {
	d.t.Helper()
	if left := marked(r.mark()); len(left) > 0 {
		d.t.Errorf("processes are left: %v", left)
	}
	var leases struct {
		Leases []struct {
			Waiters []any
		}
	}
	d.read(&leases, "leases", "--run", r.name, "--json")
	if len(leases.Leases) > 0 {
		d.t.Errorf("leases are left: %+v", leases)
	}
	var tree struct{ Runs []view.ShownRun }
	d.read(&tree, "tree", "--run", r.name, "--all", "--json")
	for _, run := range tree.Runs {
		if run.EndedAt == nil {
			d.t.Errorf("run %s has not ended", run.Run)
		}
		for _, a := range run.Actors {
			if a.EndedAt == nil || a.State != "ended" || a.Leases+a.Waiting > 0 {
				d.t.Errorf("actor %+v is left", a)
			}
		}
	}
	if claims := d.leasehold("queue", "list", "--run", r.name, "--state", "in_progress", "--json"); strings.Contains(claims, `"task_id"`) {
		d.t.Errorf("claims are left: %s", claims)
	}
	d.worktreesTold(r)
}

func (d *chaos) read(v any, args ...string) {
	d.t.Helper()
	if err := json.Unmarshal([]byte(d.leasehold(args...)), v); err != nil {
		d.t.Fatalf("leasehold %v: %v", args, err)
	}
}

// worktreesTold holds git's worktrees of a run against those of its summary.
func (d *chaos) worktreesTold(r *chaoticRun) {
	d.t.Helper()
	kept := map[string]bool{}
	for _, a := range r.summary().Actors {
		if a.Worktree != "" {
			kept[a.Worktree] = true
		}
	}
	for line := range strings.Lines(d.git("-C", "work", "worktree", "list", "--porcelain")) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "worktree ")
		if !ok || !strings.Contains(path, "/runs/"+r.name+"/") {
			continue
		}
		if !kept[path] {
			d.t.Errorf("worktree %s is left, and nobody tells of it", path)
		}
		delete(kept, path)
	}
	if len(kept) > 0 {
		d.t.Errorf("worktrees are told of that are not there: %v", kept)
	}
}

// accounted holds the summary against what the agents say they spawned.
func (r *chaoticRun) accounted(s launcher.Summary) {
	r.t.Helper()
	status := map[string]string{}
	for _, a := range s.Actors {
		switch a.Status {
		case "succeeded", "failed", "timed_out", "cancelled", "spawn_failed", "lost":
			status[a.Path] = a.Status
		default:
			r.t.Errorf("actor %s ended as %q", a.Path, a.Status)
		}
	}
	logs, err := filepath.Glob(filepath.Join(s.Directory, "actors", "*", "stdout*.log"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			r.t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			path, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "spawned ")
			if ok && status[path] == "" {
				r.t.Errorf("%s was spawned, and the summary does not know it", path)
			}
		}
	}
}
