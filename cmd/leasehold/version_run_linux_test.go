package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

var keepRun = flag.String("keep-run", "", "write testdata/runs of this version: a run that was killed with its daemon")

// keptManifest is of a run whose first worker succeeds, and whose second one and root
// are at work when it is killed.
const keptManifest = `
[run]
name = "kept"
[agents.lead]
extends = "command"
command = ["sh", "-c", '''
leasehold call spawn_worker name=W1 prompt=first agent=worker &&
leasehold call actor_wait actors=W1 mode=all wait_secs=50 &&
leasehold call spawn_worker name=W2 prompt=second agent=worker &&
leasehold call actor_wait actors=W2 mode=all wait_secs=50
''']
[agents.worker]
extends = "command"
command = ["sh", "-c", '''
read -r prompt
leasehold call actor_report result="$prompt done"
[ "$prompt" != first ] || exit 0
leasehold call run_lease_acquire key=second
echo waiting
until [ -e "$KEPT_RUN_GOES_ON" ]; do sleep 0.05; done
''']
[root]
name = "boss"
agent = "lead"
directory = "/tmp"
prompt = "lead"
`

// A keptRun is a home in which a run is dispatched, or goes on.
type keptRun struct {
	t      *testing.T
	home   string
	binary string
	env    []string
}

func newKeptRun(t *testing.T, version string) *keptRun {
	t.Helper()
	home := shortDir(t)
	bin := filepath.Join(home, "bin") // what the agents call
	k := &keptRun{t: t, home: home, binary: filepath.Join(bin, "leasehold")}
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(builtAs(t, home, version), k.binary); err != nil {
		t.Fatal(err)
	}
	k.env = append(connection.WithoutSecrets(os.Environ()),
		"HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"), "XDG_RUNTIME_DIR="+home, "LEASEHOLD_SOCKET=", "LEASEHOLD_RUN=",
		"PATH="+bin+":"+os.Getenv("PATH"), "KEPT_RUN_GOES_ON="+filepath.Join(home, "go"))
	t.Cleanup(func() { _ = k.command("stop").Run() })
	return k
}

func (k *keptRun) command(args ...string) *exec.Cmd {
	cmd := exec.Command(k.binary, args...)
	cmd.Dir, cmd.Env = k.home, k.env
	return cmd
}

// keep writes the archive of a run that was killed.
func (k *keptRun) keep(archive string) {
	t := k.t
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.home, "kept.toml"), []byte(keptManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := k.command("serve", "--log-level", "error")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the daemon listens", func() bool {
		out, err := k.command("status").Output()
		return err == nil && strings.Contains(string(out), "a daemon runs")
	})
	run := k.command("dispatch", "kept.toml")
	run.Stdout, run.Stderr = os.Stderr, os.Stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "W2 works", func() bool {
		out, _ := k.command("logs", "kept", "W2").Output()
		return strings.Contains(string(out), "waiting")
	})
	_ = serve.Process.Signal(syscall.SIGKILL)
	_ = serve.Wait()
	_ = run.Process.Signal(syscall.SIGKILL)
	_ = run.Wait() // its watchdog ends the agents
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", k.home, "--exclude=daemon.*", "-czf", archive, "state").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A run that an earlier version dispatched, and that was killed with its daemon, goes
// on from its run directory and its state: who had succeeded stays so, with the result.
func TestARunOfAnEarlierVersionGoesOn(t *testing.T) {
	t.Parallel()
	if *keepRun != "" {
		archive, err := filepath.Abs(filepath.Join("testdata", "runs", *keepRun+".tgz"))
		if err != nil {
			t.Fatal(err)
		}
		newKeptRun(t, *keepRun).keep(archive)
	}
	archives, err := filepath.Glob("testdata/runs/*.tgz")
	if err != nil || len(archives) == 0 {
		t.Fatalf("there are no runs: %v", err)
	}
	k := newKeptRun(t, "10.0.0")
	if err := os.WriteFile(filepath.Join(k.home, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".tgz"), func(t *testing.T) {
			if out, err := exec.Command("tar", "-C", k.home, "-xzf", archive).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			defer func() {
				if out, err := k.command("stop").CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				os.RemoveAll(filepath.Join(k.home, "state"))
			}()
			out, err := k.command("dispatch", "--resume", "kept").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "run kept goes on, in its life 2") {
				t.Fatalf("%v: %s", err, out)
			}
			dirs, _ := filepath.Glob(filepath.Join(k.home, "state", "leasehold", "runs", "kept", "*"))
			if len(dirs) != 1 {
				t.Fatalf("run directories: %v", dirs)
			}
			text, err := os.ReadFile(filepath.Join(dirs[0], "summary.json"))
			var s launcher.Summary
			if err != nil || json.Unmarshal(text, &s) != nil {
				t.Fatalf("%v: %s", err, text)
			}
			life := map[string]int{"root": 2, "W1": 1, "W2": 2}
			for _, a := range s.Actors {
				if a.Status != "succeeded" || a.Life != life[a.Path] {
					t.Errorf("%s %s in its life %d", a.Path, a.Status, a.Life)
				}
			}
			if s.Life != 2 || len(s.Actors) != len(life) || !strings.Contains(string(text), "first done") || !strings.Contains(string(text), "second done") {
				t.Errorf("summary: %s", text)
			}
		})
	}
}
