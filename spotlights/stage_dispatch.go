package spotlights

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/process"
)

// A dispatcher is a `leasehold dispatch` process that a story has started. Its
// output is read when the story asks for it.
type dispatcher struct {
	st      *stage
	cmd     *exec.Cmd
	says    *bufio.Reader
	log     string
	events  []launcher.Event // read so far
	summary *launcher.Summary
	reap    sync.Once
}

// drainGrace is the grace of the runs. It is short, because some processes use
// all of it.
const drainGrace = 500 * time.Millisecond

// dispatch starts a tree of scripts. Each script is an agent of that name, and
// lead is the root.
func (st *stage) dispatch(scripts map[string]string) *dispatcher {
	m := st.daemon.(*Machine)
	var manifest strings.Builder
	fmt.Fprintf(&manifest, "[run]\nname = %q\ndrain_grace_secs = %v\n[root]\nagent = \"lead\"\nprompt = \"Lead.\"\n", run, drainGrace.Seconds())
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		fmt.Fprintf(&manifest, "[agents.%s]\nextends = \"command\"\ncommand = [\"sh\", \"-eu\", %q]\n", name, name+".sh")
		st.must(os.WriteFile(filepath.Join(m.dir, name+".sh"), []byte(scripts[name]), 0o600))
	}
	st.must(os.WriteFile(filepath.Join(m.dir, run+".toml"), []byte(manifest.String()), 0o600))
	return st.startDispatcher(run + ".toml")
}

// resume continues the run.
func (st *stage) resume() *dispatcher { return st.startDispatcher("--resume", run) }

func (st *stage) startDispatcher(args ...string) *dispatcher {
	m := st.daemon.(*Machine)
	d := &dispatcher{st: st, cmd: m.command(append([]string{"dispatch", "--json"}, args...)...), log: filepath.Join(m.dir, "dispatch.log")}
	log, err := os.OpenFile(d.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	st.must(err)
	defer log.Close()
	d.cmd.Stderr = log
	says, err := d.cmd.StdoutPipe()
	st.must(err)
	d.says = bufio.NewReader(says)
	st.must(d.cmd.Start())
	st.calls.Go(func() {
		<-st.ctx.Done() // the story is over, or has failed
		d.kill()
	})
	return d
}

// kill kills the dispatcher, unless it has ended.
func (d *dispatcher) kill() {
	d.reap.Do(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
	})
}

// next reads the next event, or the summary, which comes last.
func (d *dispatcher) next() {
	line, err := d.says.ReadBytes('\n')
	if err != nil {
		said, _ := os.ReadFile(d.log)
		d.st.want(false, "the dispatcher has ended (%v): %s", err, said)
	}
	var said struct {
		launcher.Event
		Summary *launcher.Summary
	}
	d.st.must(json.Unmarshal(line, &said))
	if said.Summary != nil {
		d.summary = said.Summary
		return
	}
	d.events = append(d.events, said.Event)
}

// until reads events up to the first one of a kind about an actor, and returns
// that one.
func (d *dispatcher) until(kind, path string) launcher.Event {
	for i := 0; ; i++ {
		for i == len(d.events) {
			d.st.want(d.summary == nil, "the run is over, and there was no %s of %s", kind, path)
			d.next()
		}
		if e := d.events[i]; e.Event == kind && e.Path == path {
			return e
		}
	}
}

// pid returns the process of an actor that was started.
func (d *dispatcher) pid(path string) int { return d.until(launcher.ActorStarted, path).PID }

// murder kills the process of an actor.
func (d *dispatcher) murder(path string) (at time.Time) {
	at = time.Now()
	d.st.must(syscall.Kill(d.pid(path), syscall.SIGKILL))
	return at
}

// over waits until the run is over, and returns its actors by path.
func (d *dispatcher) over() map[string]launcher.Actor {
	for d.summary == nil {
		d.next()
	}
	actors := make(map[string]launcher.Actor)
	for _, a := range d.summary.Actors {
		actors[a.Path] = a
	}
	return actors
}

// output returns what the process of an actor has printed.
func (d *dispatcher) output(path string) string { return d.logged(path, 0) }

// complaints returns what it has printed to stderr.
func (d *dispatcher) complaints(path string) string { return d.logged(path, 1) }

func (d *dispatcher) logged(path string, stream int) string {
	text, err := os.ReadFile(d.until(launcher.ActorStarted, path).Logs[stream])
	d.st.must(err)
	return string(text)
}

// file returns the contents of a file that a script has written.
func (st *stage) file(name string) string {
	text, err := os.ReadFile(filepath.Join(st.daemon.(*Machine).dir, name))
	st.must(err)
	return string(text)
}

// touch creates a file that a script waits for.
func (st *stage) touch(name string) {
	st.must(os.WriteFile(filepath.Join(st.daemon.(*Machine).dir, name), nil, 0o600))
}

// result decodes what an actor reported.
func (st *stage) result(a launcher.Actor, v any) {
	st.want(len(a.Result) > 0, "%s %s and reported nothing: %s", a.Path, a.Status, a.Cause)
	st.must(json.Unmarshal(a.Result, v))
}

// gone waits until a process has ended.
func (st *stage) gone(pid int) {
	for process.Find(pid).PID != 0 {
		st.must(st.ctx.Err())
		time.Sleep(time.Millisecond)
	}
}
