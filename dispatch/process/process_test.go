package process_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// long is a grace that no test waits for.
const long = time.Minute

func stop(t *testing.T, p *process.Process, grace time.Duration) {
	t.Helper()
	if err := p.Stop(t.Context(), grace); err != nil {
		t.Fatal(err)
	}
}

func TestProcessHasItsInputItsOutputAndASessionOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	create := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer t.Cleanup(func() { f.Close() })
		return f
	}
	tr := newTree(t)
	spec := tr.spec("echo")
	large := strings.Repeat("much to read, ", 100_000) // more than a pipe holds
	spec.Stdin, spec.Dir = []byte(large), dir
	spec.Stdout, spec.Stderr = create("out"), create("err")
	p, err := process.Start(spec)
	if err != nil {
		t.Fatal(err)
	}
	if exit := p.Exit(); exit != (process.Exit{}) {
		t.Errorf("exit: %v", exit)
	}
	stop(t, p, long)
	out, _ := os.ReadFile(filepath.Join(dir, "out"))
	if want := fmt.Sprintf("%s\nsession %[2]d of %[2]d\n", large, p.PID()); string(out) != want {
		t.Errorf("it printed %d bytes that end in %q", len(out), out[max(0, len(out)-60):])
	}
	if said, _ := os.ReadFile(filepath.Join(dir, "err")); !strings.HasPrefix(string(said), "to stderr from ") || !strings.HasSuffix(strings.TrimSpace(string(said)), filepath.Base(dir)) {
		t.Errorf("it said %q", said)
	}
	tr.gone()
}

func TestExitTellsCodeAndSignal(t *testing.T) {
	tr := newTree(t)
	for _, c := range []struct {
		argv []string
		want process.Exit
	}{
		{[]string{"exit", "0"}, process.Exit{}},
		{[]string{"exit", "7"}, process.Exit{Code: 7}},
		{[]string{"die", "9"}, process.Exit{Code: -1, Signal: "SIGKILL"}},
		{[]string{"die", "15"}, process.Exit{Code: -1, Signal: "SIGTERM"}},
	} {
		p := tr.start(c.argv...)
		if got := p.Exit(); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.argv, got, c.want)
		}
		stop(t, p, long)
		stop(t, p, long) // again: nothing
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("a signal to nobody: %v", err)
		}
	}
	tr.gone()
}

func TestStartRefusesWhatCannotBeFoundAgain(t *testing.T) {
	tr := newTree(t)
	for name, change := range map[string]func(*process.Spec){
		"no mark":        func(s *process.Spec) { s.Mark = "" },
		"an empty value": func(s *process.Spec) { s.Mark = "A=" },
		"another mark":   func(s *process.Spec) { s.Mark = "A=b" },
		"no program":     func(s *process.Spec) { s.Argv = nil },
		"a missing one":  func(s *process.Spec) { s.Argv = []string{"/no/such/program"} },
		"no directory":   func(s *process.Spec) { s.Dir = "/no/such/directory" },
	} {
		spec := tr.spec("idle")
		change(&spec)
		if _, err := process.Start(spec); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	tr.gone()
}

// Each tree ends quickly: either all of it reacts to SIGTERM, or there is no
// grace.
func TestNothingOfATreeIsLeft(t *testing.T) {
	for _, c := range []struct {
		name  string
		argv  []string
		count int // processes that say their role
		grace time.Duration
	}{
		{"one", []string{"idle"}, 1, long},
		{"children and grandchildren", []string{"parent", "idle", "parent idle parent,idle,idle"}, 6, long},
		{"a child in a session of its own", []string{"parent", "session parent idle"}, 3, long},
		{"a daemon: it forks twice and leaves its session", []string{"parent", "leave session,idle", "idle"}, 3, long},
		{"a child without the environment", []string{"parent", "bare parent idle"}, 3, long},
		{"a child without the environment, in a session of its own", []string{"parent", "session bare parent idle"}, 3, long},
		{"an orphan without the environment", []string{"parent", "leave bare,idle"}, 2, long},
		{"one that ignores SIGTERM", []string{"stubborn"}, 1, 50 * time.Millisecond},
		{"children that ignore SIGTERM, everywhere", []string{"parent", "stubborn", "session stubborn", "leave session,stubborn"}, 4, 50 * time.Millisecond},
		{"without a grace", []string{"parent", "session stubborn", "parent idle idle"}, 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			survives := bystander(t)
			tr := newTree(t)
			p := tr.start(c.argv...)
			tr.await(c.count)
			stop(t, p, c.grace)
			tr.gone()
			survives()
		})
	}
}

func TestOrphansOfAProcessThatEndedAreEnded(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	p := tr.start("leave", "idle", "session idle", "bare idle")
	tr.await(3)
	if exit := p.Exit(); exit.Code != 0 {
		t.Fatalf("exit: %v", exit)
	}
	stop(t, p, long)
	tr.gone()
	survives()
}

// The processes that a hydra starts on SIGTERM end too. Each has its own
// session.
func TestWhatIsStartedOnSigtermEnds(t *testing.T) {
	tr := newTree(t)
	p := tr.start("parent", "hydra 3", "session hydra 3")
	tr.await(3)
	stop(t, p, long)
	tr.gone()
}

func TestTreeThatNeverStopsToGrowEnds(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	p := tr.start("parent", "brood", "session brood", "brood")
	tr.await(4)
	stop(t, p, 200*time.Millisecond)
	tr.gone()
	survives()
}

func TestStoppedProcessHearsSigterm(t *testing.T) {
	tr := newTree(t)
	p := tr.start("idle")
	tr.await(1)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stop(t, p, long)
	if exit := p.Exit(); exit.Signal != "SIGTERM" {
		t.Errorf("exit: %v", exit)
	}
	tr.gone()
}

// A second Ctrl-C does not wait for the grace of the first.
func TestShorterGraceCutsALongerOneShort(t *testing.T) {
	tr := newTree(t)
	p := tr.start("stubborn")
	tr.await(1)
	var wg sync.WaitGroup
	wg.Go(func() { stop(t, p, long) })
	wg.Go(func() { stop(t, p, 10*time.Millisecond) })
	wg.Wait()
	if exit := p.Exit(); exit.Signal != "SIGKILL" {
		t.Errorf("exit: %v", exit)
	}
	tr.gone()
}

func TestStopReturnsWhenTheCallerGivesUp(t *testing.T) {
	tr := newTree(t)
	p := tr.start("stubborn")
	tr.await(1)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("no time left"))
	defer cancel()
	if err := p.Stop(ctx, long); err == nil || !strings.Contains(err.Error(), "no time left") {
		t.Errorf("error: %v", err)
	}
	stop(t, p, 0) // Stop can be repeated
	tr.gone()
}

func TestManyTreesAreStoppedAtOnce(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	var all []*process.Process
	for range 20 {
		all = append(all, tr.start("parent", "session idle"))
	}
	tr.await(40)
	var wg sync.WaitGroup
	for _, p := range all[1:] {
		wg.Go(func() { stop(t, p, long) })
	}
	wg.Wait()
	// All have the same mark, so the first stop ended every one of them.
	stop(t, all[0], long)
	tr.gone()
	survives()
}

// One actor of a run is stopped, and afterwards the whole run.
func TestStopEndsItsOwnAndEndTheWholeRun(t *testing.T) {
	run, one, other := newTree(t), newTree(t), newTree(t)
	start := func(tr *tree) *process.Process {
		spec := tr.spec("parent", "session idle")
		spec.Env = append(spec.Env, run.mark)
		p, err := process.Start(spec)
		if err != nil {
			t.Fatal(err)
		}
		tr.await(2)
		return p
	}
	survives := bystander(t)
	first, second := start(one), start(other)
	stop(t, first, long)
	one.gone()
	for _, pid := range other.pids {
		if !running(pid) {
			t.Errorf("process %d was of another actor", pid)
		}
	}
	if n, err := process.End(t.Context(), run.mark, long); err != nil || n != 2 {
		t.Errorf("ended %d: %v", n, err)
	}
	other.gone()
	stop(t, second, long) // reaps it
	if n, err := process.End(t.Context(), run.mark, long); err != nil || n != 0 {
		t.Errorf("ended %d: %v", n, err)
	}
	run.gone()
	survives()
}

// The caller may have the mark itself, as a dispatcher within a run does.
func TestEndSparesTheCallerAndItsAncestors(t *testing.T) {
	if mark := os.Getenv("LEASEHOLD_TEST_OWN"); mark != "" {
		if _, err := process.End(t.Context(), "LEASEHOLD_TEST_OWN="+mark, 0); err != nil {
			t.Fatal(err)
		}
		return
	}
	tr := newTree(t)
	mark := strings.Replace(tr.mark, "LEASEHOLD_TEST_MARK", "LEASEHOLD_TEST_OWN", 1)
	// The shell waits for it; with exec it would not be an ancestor.
	cmd := exec.Command("sh", "-c", `"$0" -test.run "^$1$" && echo survived`, os.Args[0], t.Name())
	cmd.Env = append(os.Environ(), mark)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), "survived\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestEndRefusesAMarkThatAnybodyMayHave(t *testing.T) {
	for _, mark := range []string{"", "=", "A", "A=", "=b"} {
		if _, err := process.End(t.Context(), mark, 0); err == nil {
			t.Errorf("mark %q: no error", mark)
		}
	}
}
