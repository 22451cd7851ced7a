package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// An agentProcess is the process of one actor, from the order to start it to
// the report of its end.
type agentProcess struct {
	launcher *Launcher
	order    tools.Launch
	pid      atomic.Int64  // until its end is reported
	asked    chan struct{} // closed when it is asked to end
	why      tools.Stop    // the first order to end, once asked is closed
	asks     sync.Once
	disowned chan struct{} // closed: the process is ended, and its end is not reported
	disowns  sync.Once
	done     chan struct{} // closed when the process tree is gone and that was reported
}

func newAgentProcess(l *Launcher, o tools.Launch) *agentProcess {
	return &agentProcess{
		launcher: l, order: o,
		asked: make(chan struct{}), disowned: make(chan struct{}), done: make(chan struct{}),
	}
}

// stopOrder is the order to end a process whose actor is thereby cancelled.
func stopOrder(reason string) tools.Stop { return tools.Stop{Status: "cancelled", Reason: reason} }

// ask asks the process to end. The first reason given is the one reported.
func (a *agentProcess) ask(o tools.Stop) {
	a.asks.Do(func() {
		a.why = o
		close(a.asked)
	})
}

func (a *agentProcess) disown() { a.disowns.Do(func() { close(a.disowned) }) }

// live runs the process, and reports its end when all of its tree is gone.
func (a *agentProcess) live(ctx context.Context) {
	defer close(a.done)
	defer a.pid.Store(0)
	l, o := a.launcher, a.order
	end := a.run(ctx)
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	l.settled()
	end.Run, end.ActorID = l.run, o.ActorID
	end.Cause = wire.Informative(end.Cause) // it may name a file
	select {
	case <-a.disowned:
		return
	default:
	}
	var settled Actor
	if err := l.link.call(ctx, "operator_launch_exited", end, &settled); err != nil {
		end.Cause = strings.TrimPrefix(end.Cause+"; not reported: "+err.Error(), "; ")
	} else {
		l.mu.Lock()
		l.results[o.ActorID] = settled.Result
		l.mu.Unlock()
	}
	text := fmt.Sprintf("%s %s", o.Path, strings.ReplaceAll(end.Status, "_", " "))
	if end.Cause != "" {
		text += ": " + end.Cause
	}
	l.event(Event{
		Event: ActorExited, Path: o.Path, Role: o.Role, Agent: o.Order.Agent, Status: end.Status,
		ExitCode: end.ExitCode, Signal: end.Signal, CostUSD: end.CostUSD, Text: text,
	})
}

// run starts the process, waits until it ends or must end, and returns how it
// ended.
func (a *agentProcess) run(ctx context.Context) (end tools.LaunchExit) {
	l, o := a.launcher, a.order
	p, err := l.opts.Directory.place(o.Path, o.ActorID, o.Life)
	if err != nil {
		return tools.LaunchExit{Status: "spawn_failed", Cause: err.Error()}
	}
	defer p.close()
	defer func() { end.Worktree = p.keptWorktree() }() // perhaps that of an earlier life
	profile, ok := l.plan.agent(o.Order.Agent)
	if !ok {
		return tools.LaunchExit{Status: "spawn_failed", Cause: fmt.Sprintf("the manifest has no agent %q", o.Order.Agent)}
	}
	if secs := o.Order.TimeoutSecs; secs > 0 { // of which its worktree may take a part
		timeout := tools.Stop{Status: "timed_out", Reason: fmt.Sprintf("it took longer than %v s", secs)}
		defer time.AfterFunc(seconds(secs), func() { a.ask(timeout) }).Stop()
	}
	directory, tree, err := a.workplace(ctx, p)
	if err != nil {
		return a.unstarted(err)
	}
	started := false
	if tree != nil {
		defer func() {
			why := clearWorktree(ctx, tree, started, end.Status == "succeeded")
			l.mu.Lock()
			l.kept[o.ActorID] = why
			l.mu.Unlock()
		}()
	}

	set, err := profile.Launch(a.task(directory, p))
	if err != nil {
		return tools.LaunchExit{Status: "spawn_failed", Cause: err.Error()}
	}
	if end := a.unstarted(nil); end.Status != "" {
		return end
	}
	mark := process.ActorMark + "=" + o.ActorID
	proc, err := process.Start(process.Spec{
		Argv: set.Argv, Env: set.Env, Dir: set.Dir, Stdin: set.Stdin, Scratch: p.path,
		Stdout: p.stdout.File, Stderr: p.stderr.File, Mark: mark,
	})
	if err != nil {
		return tools.LaunchExit{Status: "spawn_failed", Cause: notStarted(set.Argv[0], err)}
	}
	started = true
	a.pid.Store(int64(proc.PID()))
	l.guard.watch(proc)
	if err := l.link.call(ctx, "operator_launch_started", map[string]any{"run": l.run, "actor_id": o.ActorID, "pid": proc.PID(), "logs": wire.Informative(p.path)}, nil); err != nil {
		a.ask(stopOrder("its start could not be reported: " + err.Error()))
	}
	l.event(Event{
		Event: ActorStarted, Path: o.Path, Role: o.Role, Agent: o.Order.Agent, PID: proc.PID(),
		Logs: []string{p.stdout.Name(), p.stderr.Name()},
		Text: fmt.Sprintf("%s started: %s, process %d", o.Path, o.Order.Agent, proc.PID()),
	})
	stop := bound(p.stdout, p.stderr)
	end = a.attend(ctx, proc)
	stop()
	var outcome agent.Outcome
	p.stdout.read(func(r io.Reader) { outcome = profile.Outcome(r) })
	end.CostUSD, end.Output = outcome.CostUSD, outcome.Result
	switch {
	case end.Status == "succeeded" && outcome.Failed != "":
		end.Status, end.Cause = "failed", outcome.Failed
	case end.Status == "failed" && outcome.Failed != "":
		end.Cause += ": " + outcome.Failed
	case end.Status == "failed" && end.Signal == "": // otherwise it did not fail by itself
		end.Cause += lastLine(p.stderr)
	}
	return end
}

// notStarted returns why a program could not be started. It adds what to do where the
// system's own words mislead.
func notStarted(program string, err error) string {
	_, absent := os.Stat(program)
	var failed *fs.PathError
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return err.Error() + ": a script must begin with a line such as #!/bin/sh"
	case errors.Is(err, fs.ErrNotExist) && errors.As(err, &failed) && failed.Op == "fork/exec" && absent == nil: // not chdir
		return err.Error() + ": the file is there, but not the loader that it needs, as with a program of another system"
	}
	return err.Error()
}

// unstarted returns how an actor ends without a process: for the reason of
// whoever asked it to end meanwhile, otherwise because of err, if there is one.
func (a *agentProcess) unstarted(err error) tools.LaunchExit {
	select {
	case <-a.asked:
		return tools.LaunchExit{Status: a.why.Status, Cause: a.why.Reason}
	case <-a.disowned:
		return tools.LaunchExit{Status: "cancelled"}
	default:
	}
	if err != nil {
		return tools.LaunchExit{Status: "spawn_failed", Cause: err.Error()}
	}
	return tools.LaunchExit{}
}

// attend waits until the process ends, by itself or because it was asked to,
// and until its tree is gone.
func (a *agentProcess) attend(ctx context.Context, proc *process.Process) (end tools.LaunchExit) {
	select {
	case <-proc.Done():
	case <-a.asked:
		end = tools.LaunchExit{Status: a.why.Status, Cause: a.why.Reason}
	case <-a.disowned:
		end = tools.LaunchExit{Status: "cancelled"}
	}
	if end.Status != "" {
		a.launcher.event(Event{
			Event: ActorStopping, Path: a.order.Path, Role: a.order.Role, Status: end.Status,
			Text: fmt.Sprintf("%s is ended: %s", a.order.Path, end.Cause),
		})
		a.endBelow(end)
	}
	a.endTree(ctx, proc)
	a.launcher.guard.forget(proc)
	how := proc.Exit()
	if how.Signal != "" {
		end.Signal = how.Signal
	} else {
		end.ExitCode = &how.Code
	}
	switch {
	case end.Status != "":
	case a.launcher.draining.Load() && slices.Contains(interruptSignals, how.Number()):
		// A terminal, or timeout, sends these to the dispatcher's group. A process that is
		// just being started belongs to that, until it has a session of its own. systemd
		// sends SIGTERM to every process of a unit.
		end.Status, end.Cause = "cancelled", interrupted
	case how.Signal != "":
		end.Status, end.Cause = "failed", "killed by "+how.Signal
	case how.Code != 0:
		end.Status, end.Cause = "failed", fmt.Sprintf("exit code %d", how.Code)
	default:
		end.Status = "succeeded"
	}
	return end
}

// interruptSignals interrupt a dispatcher.
var interruptSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// endBelow ends the agents below a lead, before the lead itself.
func (a *agentProcess) endBelow(why tools.LaunchExit) {
	if a.order.Role == string(dispatch.Worker) {
		return
	}
	below := a.launcher.below(a.order.Path)
	for _, b := range below {
		b.ask(stopOrder(fmt.Sprintf("its lead %s was ended: %s", a.order.Path, why.Cause)))
	}
	for _, b := range below {
		select {
		case <-b.done:
		case <-a.launcher.hurry:
			return
		}
	}
}

// endTree returns when nothing is left of the process's tree. If the run is
// killed, the grace ends early.
func (a *agentProcess) endTree(ctx context.Context, proc *process.Process) {
	hurried := make(chan struct{})
	defer close(hurried)
	a.launcher.wg.Go(func() {
		select {
		case <-a.launcher.hurry:
			_ = proc.Stop(ctx, 0) // the other Stop reports the result
		case <-hurried:
		}
	})
	if err := proc.Stop(ctx, a.launcher.grace); err != nil {
		a.launcher.event(Event{
			Event: ActorStopping, Path: a.order.Path,
			Text: fmt.Sprintf("%s: what it left cannot be ended: %v", a.order.Path, err),
		})
	}
}

// task returns what the agent is told and given.
func (a *agentProcess) task(directory string, p place) agent.Task {
	l, o := a.launcher, a.order
	return agent.Task{
		Run: l.run, RunID: l.runID, ActorID: o.ActorID, Name: o.Name, Path: o.Path, Role: o.Role,
		Prompt: o.Order.Prompt, Model: o.Order.Model, Directory: directory,
		Scratch: p.files(), RunDir: l.opts.Directory.Path, Leasehold: l.opts.Leasehold,
		Socket: l.opts.Socket, Servers: l.opts.Servers, Authority: l.opts.Authority, Launcher: l.instance,
		Token: o.Token, Session: o.Session, Life: o.Life,
		Tools: tools.NamesFor(dispatch.Role(o.Role)), Allow: o.Order.Tools, BudgetUSD: o.Order.BudgetUSD,
		Env: o.Order.Env, Resumed: l.life > 1, Notes: l.plan.Notes,
	}
}
