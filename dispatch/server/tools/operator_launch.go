package tools

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/registry"
)

// launchTools returns the tools of the dispatcher, which starts and stops
// processes as ordered.
func (o *operator) launchTools() []Tool {
	again := Effect{Idempotent: true}
	return []Tool{
		tool("operator_run_dispatch", "Begin a run whose actors are launched",
			"Make a run; or with resume, continue one whose dispatcher is gone; or with attach, continue your own after the daemon has restarted. The calling connection is its launcher until it ends. After attach first report what was started and what has exited since, then ask for orders.",
			Effect{}, o.dispatchRun),
		tool("operator_launch_join", "Serve a run from one machine more",
			"Make the calling connection the launcher of a machine that serves a dispatched run, until it ends: it gets the orders that are placed there. The same instance may join again after its connection broke; it then first reports what it has started and what has exited.",
			again, o.joinRun),
		tool("operator_launch_leave", "Get no more to start", "Place nothing more with the calling launcher. It reports the ends of what it has started, and closes its connection.", again, o.leaveRun),
		tool("operator_launch_next", "Ask what to start and stop",
			"Processes to start and to stop, each told once to each launcher that attaches; waits until there is any, or nothing is unfinished.", Effect{}, o.launchNext),
		tool("operator_launch_started", "Say that a process was started", "Its pid, by which connections from it are known.", again, o.launchStarted),
		tool("operator_launch_exited", "Say how a process ended", "After all that it started is gone. Ends the actor; a second report changes nothing.", again, o.launchExited),
		tool("operator_run_drain", "Let a run end", "Spawn nothing more, and tell the agents; with stop, stop them all.", Effect{Idempotent: true, Destructive: true}, o.drainRun),
		tool("operator_run_results", "See what actors of a run reported", "Results of those of the actors that have ended and have one. Ask for a few at a time, because each may be large.", Effect{ReadOnly: true, Idempotent: true}, o.runResults),
		tool("operator_run_finish", "End a run", "End a run whose actors are finished, and sum it up.", Effect{Destructive: true}, o.finishRun),
	}
}

type dispatchRunArgs struct {
	runArg
	Resume   bool          `json:"resume,omitempty" doc:"resume a run whose dispatcher is gone" default:"false"`
	Attach   string        `json:"attach,omitempty" doc:"run_id of your own run, after the daemon has restarted; root, agents and settings then stay as they are"`
	Root     *work.Order   `json:"root,omitempty" doc:"what the root is told; its name stays in a run that is resumed"`
	Agents   []string      `json:"agents,omitempty" doc:"agents that an order can name" max:"256"`
	Settings work.Settings `json:"settings,omitzero" doc:"what the manifest says for all of the run"`
	Instance string        `json:"instance,omitempty" doc:"of the launcher's process: chosen at random, and told again with attach" max:"64"`
	Plan     string        `json:"plan,omitempty" doc:"what the launchers of other machines are given as it is" max:"262144"`
}

type dispatchedRun struct {
	RunID  string  `json:"run_id"`
	Life   int     `json:"life"`
	Root   string  `json:"root" jsonschema:"its actor_id"`
	Actors []actor `json:"actors"`
}

func (r dispatchedRun) Text() string { return fmt.Sprintf("life %d of run %s", r.Life, r.RunID) }

func (o *operator) dispatchRun(ctx context.Context, se *dispatch.Session, a dispatchRunArgs) (dispatchedRun, error) {
	req := dispatch.Dispatch{Run: a.Run, Resume: a.Resume, Agents: a.Agents, Settings: a.Settings, Instance: a.Instance, Plan: a.Plan}
	var err error
	switch {
	case a.Attach != "":
		if req.Attach, err = parseID("attach", a.Attach); err != nil {
			return dispatchedRun{}, err
		}
	case a.Root == nil:
		return dispatchedRun{}, &registry.ArgumentError{Argument: "root", Problem: "must be given"}
	default:
		req.Root = *a.Root
	}
	if err := a.Settings.Check(); err != nil {
		return dispatchedRun{}, err
	}
	info, err := o.state.DispatchRun(ctx, se, req)
	if err != nil {
		return dispatchedRun{}, err
	}
	out := dispatchedRun{RunID: info.ID.String(), Life: info.Dispatched.Life, Root: info.Root.String(), Actors: []actor{}}
	found := branches{}
	for _, a := range info.Actors {
		out.Actors = append(out.Actors, actorOf(a, found))
	}
	return out, nil
}

type joinRunArgs struct {
	runArg
	Machine  string   `json:"machine" doc:"name of the machine" min:"1" max:"64"`
	Labels   []string `json:"labels,omitempty" doc:"more words by which it can be asked for" max:"32"`
	Instance string   `json:"instance" doc:"of the launcher's process: chosen at random, 16 bytes or more" min:"1" max:"64"`
}

type joinedRun struct {
	RunID string `json:"run_id"`
	Life  int    `json:"life"`
	Plan  string `json:"plan" jsonschema:"as the dispatcher gave it" told:"never"`
}

func (r joinedRun) Text() string { return fmt.Sprintf("serves life %d of run %s", r.Life, r.RunID) }

func (o *operator) joinRun(ctx context.Context, se *dispatch.Session, a joinRunArgs) (joinedRun, error) {
	j, err := o.state.JoinRun(ctx, se, dispatch.Join{Run: a.Run, Machine: a.Machine, Labels: a.Labels, Instance: a.Instance})
	return joinedRun{j.RunID.String(), j.Life, j.Plan}, err
}

func (o *operator) leaveRun(ctx context.Context, se *dispatch.Session, a runArg) (noted, error) {
	return noted{true}, o.state.LeaveRun(ctx, se, a.Run)
}

type launchNextArgs struct {
	runArg
	Wait seconds `json:"wait_secs" doc:"how long at most" min:"0" max:"50"`
}

// A Launch is the order to start the process of an actor.
type Launch struct {
	ActorID string     `json:"actor_id"`
	Path    string     `json:"path"`
	Name    string     `json:"name"`
	Role    string     `json:"role"`
	Life    int        `json:"life"`
	Token   string     `json:"token" jsonschema:"of the actor; a secret, shown once"`
	Session string     `json:"session" jsonschema:"handle of the session that is kept open for the process; a secret, shown once"`
	Order   work.Order `json:"order"`
}

// A Stop is the order to end the process of an actor.
type Stop struct {
	ActorID string `json:"actor_id"`
	Path    string `json:"path"`
	Reason  string `json:"reason"`
	Status  string `json:"status" jsonschema:"what it ends as, to be reported so"`
}

// LaunchOrders is what a launcher is to do next.
type LaunchOrders struct {
	Launch     []Launch `json:"launch" told:"never"`
	Stop       []Stop   `json:"stop" jsonschema:"deepest first"`
	Draining   bool     `json:"draining"`
	Unfinished int      `json:"unfinished" jsonschema:"actors that have not ended"`
}

func (l LaunchOrders) Text() string {
	return fmt.Sprintf("%d to start, %d to stop, %d unfinished", len(l.Launch), len(l.Stop), l.Unfinished)
}

func (o *operator) launchNext(ctx context.Context, se *dispatch.Session, a launchNextArgs) (LaunchOrders, error) {
	next, err := o.state.NextOrders(ctx, se, a.Run, a.Wait.duration())
	if err != nil {
		return LaunchOrders{}, err
	}
	out := LaunchOrders{Launch: []Launch{}, Stop: []Stop{}, Draining: next.Draining, Unfinished: next.Unfinished}
	for _, l := range next.Launch {
		out.Launch = append(out.Launch, Launch{
			ActorID: l.Actor.ID.String(), Path: l.Actor.Path, Name: l.Actor.Name, Role: string(l.Actor.Role), Life: l.Life,
			Token: l.Token, Session: l.Handle, Order: l.Order,
		})
	}
	for _, s := range next.Stop {
		out.Stop = append(out.Stop, Stop{s.Actor.ID.String(), s.Actor.Path, s.Reason, string(s.Status)})
	}
	return out, nil
}

// Launched names an actor that was ordered.
type Launched struct {
	Run     string `json:"run" doc:"its name" min:"1" max:"64"`
	ActorID string `json:"actor_id" doc:"from the order"`
}

type launchStartedArgs struct {
	Launched
	PID  int    `json:"pid" doc:"of the process, which leads a group of its own" min:"2" max:"4194304"`
	Logs string `json:"logs,omitempty" doc:"directory of what it writes, on the launcher's machine" max:"4096"`
}

type noted struct {
	Noted bool `json:"noted"`
}

func (noted) Text() string { return "noted" }

func (o *operator) launchStarted(ctx context.Context, se *dispatch.Session, a launchStartedArgs) (noted, error) {
	id, err := parseID("actor_id", a.ActorID)
	if err != nil {
		return noted{}, err
	}
	return noted{true}, o.state.LaunchStarted(ctx, se, a.Run, id, a.PID, a.Logs)
}

// A LaunchExit is the report of how an actor ended. It has no limits for texts that can be cut, because a refused
// exit would leave its actor unfinished for ever.
type LaunchExit struct {
	Launched
	Status   string   `json:"status" doc:"how it ended" enum:"succeeded|failed|timed_out|cancelled|spawn_failed|lost"`
	ExitCode *int     `json:"exit_code,omitempty" doc:"if it exited by itself"`
	Signal   string   `json:"signal,omitempty" doc:"that ended it"`
	Cause    string   `json:"cause,omitempty" doc:"why it did not succeed; the first 4 KiB are kept"`
	CostUSD  *float64 `json:"cost_usd,omitempty" doc:"its own in this life, if its agent reported it"`
	Output   string   `json:"output,omitempty" doc:"its result if it reported none; the last 64 KiB are kept"`
	Worktree string   `json:"worktree,omitempty" doc:"where its worktree is kept"`
}

func (o *operator) launchExited(ctx context.Context, se *dispatch.Session, a LaunchExit) (outcome, error) {
	id, err := parseID("actor_id", a.ActorID)
	if err != nil {
		return outcome{}, err
	}
	e := work.Exit{
		Status: work.Status(a.Status), ExitCode: a.ExitCode, Signal: a.Signal, Cause: a.Cause,
		Output: a.Output, Worktree: a.Worktree,
	}
	if a.CostUSD != nil {
		cost := min(work.USD(max(0, *a.CostUSD)), work.MaxBudget)
		e.Cost = &cost
	}
	info, result, err := o.state.LaunchExited(ctx, se, a.Run, id, e)
	if err != nil {
		return outcome{}, err
	}
	return outcome{actor: actorOf(info, branches{}), Result: result}, nil
}

type drainRunArgs struct {
	runArg
	Reason string `json:"reason" doc:"told to agents" min:"1" max:"512"`
	Stop   bool   `json:"stop,omitempty" doc:"stop all unfinished actors" default:"false"`
}

type drained struct {
	Unfinished int `json:"unfinished" jsonschema:"actors that have not ended"`
}

func (d drained) Text() string { return fmt.Sprintf("draining, %d unfinished", d.Unfinished) }

func (o *operator) drainRun(ctx context.Context, se *dispatch.Session, a drainRunArgs) (drained, error) {
	left, err := o.state.DrainRun(ctx, se, a.Run, a.Reason, a.Stop)
	return drained{left}, err
}

type runResultsArgs struct {
	runArg
	Actors []string `json:"actors" doc:"their actor_ids" max:"64"`
}

type runResults struct {
	Results []actorResult `json:"results" jsonschema:"in the order of the call"`
}

type actorResult struct {
	ActorID string          `json:"actor_id"`
	Result  json.RawMessage `json:"result" jsonschema:"what it reported, else its last output"`
}

func (r runResults) Text() string { return fmt.Sprintf("%d results", len(r.Results)) }

func (o *operator) runResults(ctx context.Context, se *dispatch.Session, a runResultsArgs) (runResults, error) {
	ids := make([]uuid.UUID, len(a.Actors))
	for i, actor := range a.Actors {
		var err error
		if ids[i], err = parseID("actors", actor); err != nil {
			return runResults{}, err
		}
	}
	results, err := o.state.RunResults(ctx, se, a.Run, ids)
	if err != nil {
		return runResults{}, err
	}
	out := runResults{Results: []actorResult{}}
	for _, id := range ids {
		if result, ok := results[id]; ok {
			out.Results = append(out.Results, actorResult{id.String(), result})
		}
	}
	return out, nil
}

type runSummary struct {
	Run       string  `json:"run"`
	RunID     string  `json:"run_id"`
	Life      int     `json:"life"`
	CreatedAt stamp   `json:"created_at"`
	EndedAt   stamp   `json:"ended_at,omitempty"`
	Actors    []actor `json:"actors" jsonschema:"each lead before its layer"`
}

func (r runSummary) Text() string {
	return fmt.Sprintf("run %s is finished, %d actors", r.Run, len(r.Actors))
}

func (o *operator) finishRun(ctx context.Context, se *dispatch.Session, a runArg) (runSummary, error) {
	info, err := o.state.FinishRun(ctx, se, a.Run)
	if err != nil {
		return runSummary{}, err
	}
	out := runSummary{
		Run: info.Name, RunID: info.ID.String(), Life: info.Dispatched.Life,
		CreatedAt: stampOf(info.CreatedAt), EndedAt: instant(info.EndedAt), Actors: []actor{},
	}
	found := branches{}
	for _, a := range info.Actors {
		out.Actors = append(out.Actors, actorOf(a, found))
	}
	return out, nil
}
