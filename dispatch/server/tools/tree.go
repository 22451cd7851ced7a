package tools

import (
	"context"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
)

// treeTools returns the tools for the tree. The description of spawn_worker
// explains what happens to an agent.
func treeTools() []Tool {
	read := Effect{ReadOnly: true, Idempotent: true}
	return []Tool{
		tool("spawn_sublead", "Start a sub-lead",
			"Start an agent that leads its own layer and may spawn there. When it ends, all below it are stopped. Otherwise the same as spawn_worker.",
			Effect{}, spawnSublead),
		tool("spawn_worker", "Start a worker",
			"Start an agent in your layer. It works on its own: actor_wait tells when it is finished and what it reported. "+
				"If it fails or crashes, its leases are released and its status says so; only you start it again. It is stopped when you end. "+
				"After a refusal (LIMIT, DRAINING, INVALID_ARGUMENT) nothing was started. In a resumed run a name means the same actor as before: one that succeeded is answered at once, with its result.",
			Effect{}, spawnWorker),
		tool("actor_list", "See who works with you",
			"List the actors of your layer, or as a lead of your sub-tree: what each holds and waits for, and its status.",
			read, listActors),
		tool("actor_status", "See the status of an actor",
			"Show an actor of your sub-tree, or yourself, with what it reported.", read, actorStatus),
		tool("actor_wait", "Wait for actors to finish",
			"Wait until any or all of these actors are finished. Answers the status of each and what it reported; with done false, call again.",
			read, awaitActors),
		tool("actor_cancel", "Stop an actor",
			"Stop an actor of your sub-tree and all below it: SIGTERM, later SIGKILL; then their leases are released. A finished one stays as it is.",
			Effect{Destructive: true, Idempotent: true}, cancelActor),
		tool("actor_report", "Report your result",
			"Report your result, before you end; your lead receives it from actor_wait. The last report counts. Without one your last output is taken.",
			Effect{Idempotent: true}, report),
	}
}

type listActorsArgs struct {
	After string `json:"after,omitempty" doc:"next of the previous reply" max:"512"`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"200" default:"50"`
}

type actorList struct {
	Next   string  `json:"next,omitempty" jsonschema:"there are more: ask again with after"`
	Actors []actor `json:"actors" jsonschema:"each lead before its layer"`
}

// An actor is an actor in a list. The fields after the origin are only set for
// launched actors.
type actor struct {
	ActorID   string    `json:"actor_id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" told:"line"`
	Path      string    `json:"path" told:"line"`
	State     string    `json:"state" jsonschema:"connected, away (its session can be resumed), idle (no session) or ended"`
	Sessions  int       `json:"sessions"`
	Leases    int       `json:"leases" jsonschema:"held"`
	Waiting   int       `json:"waiting" jsonschema:"for how many leases"`
	Holds     []contend `json:"holds,omitempty" jsonschema:"the first of the leases it holds"`
	WaitsFor  []contend `json:"waits_for,omitempty" jsonschema:"the first of the leases it waits for"`
	CreatedAt stamp     `json:"created_at"`
	EndedAt   stamp     `json:"ended_at,omitempty"`
	EndCause  string    `json:"end_cause,omitempty"`
	You       bool      `json:"you,omitempty"`
	origin              // its pid is that of the actor's process if the actor was launched

	Status     string      `json:"status,omitempty" jsonschema:"of one that is launched: pending, running, succeeded, failed, timed_out, cancelled, spawn_failed or lost"`
	Stopping   string      `json:"stopping,omitempty" jsonschema:"why it is told to stop"`
	Agent      string      `json:"agent,omitempty"`
	Machine    string      `json:"machine,omitempty" jsonschema:"where it runs, if not where the run is dispatched; while it is pending, label means where it may"`
	Label      string      `json:"label,omitempty"`
	Logs       string      `json:"logs,omitempty" jsonschema:"directory of its output, on that machine"`
	Model      string      `json:"model,omitempty"`
	Life       int         `json:"life,omitempty" jsonschema:"of the run, in which it was last started"`
	StartedAt  stamp       `json:"started_at,omitempty"`
	FinishedAt stamp       `json:"finished_at,omitempty"`
	ExitCode   *int        `json:"exit_code,omitempty"`
	Signal     string      `json:"signal,omitempty"`
	Cause      string      `json:"cause,omitempty" jsonschema:"why it did not succeed"`
	CostUSD    *float64    `json:"cost_usd,omitempty" jsonschema:"its own, as its agent reports it"`
	SpentUSD   *float64    `json:"spent_usd,omitempty" jsonschema:"spent by it and by all below it that have ended"`
	BudgetUSD  *float64    `json:"budget_usd,omitempty" jsonschema:"its own"`
	Worktree   string      `json:"worktree,omitempty" jsonschema:"where its worktree is kept"`
	LeasesHeld []leaseName `json:"leases_held,omitempty" jsonschema:"that it held at its end, which released them"`
	LeasesLost []leaseName `json:"leases_lost,omitempty" jsonschema:"that it lost before its end"`
}

type contend struct {
	Scope  string `json:"scope" jsonschema:"layer or run, or queue for a claim on a task"`
	Key    string `json:"key" jsonschema:"of a claim: the task_id"`
	Queue  string `json:"queue,omitempty" jsonschema:"of a claim"`
	Holder string `json:"holder" jsonschema:"path of who holds it"`

	Reserved bool `json:"reserved,omitempty" jsonschema:"it is kept for holder"`
}

func contends(list []dispatch.Contend) (out []contend) {
	for _, c := range list {
		out = append(out, contend{string(c.Scope), c.Key, c.Queue, c.Holder, c.Reserved})
	}
	return out
}

type leaseName struct {
	Scope  string `json:"scope"`
	Key    string `json:"key"`
	Reason string `json:"reason,omitempty" jsonschema:"why it was lost"`
}

func actorOf(a dispatch.ActorInfo, b branches) actor {
	out := actor{
		ActorID: a.ID.String(), Name: a.Name, Role: string(a.Role), Path: a.Path, State: "idle",
		Sessions: a.Sessions, Leases: a.Leases, Waiting: a.Waiting, CreatedAt: stampOf(a.CreatedAt),
		Holds: contends(a.Holds), WaitsFor: contends(a.WaitsFor), origin: originOf(a.Origin, b),
	}
	switch {
	case a.Ended():
		out.State, out.EndedAt, out.EndCause = "ended", instant(a.EndedAt), a.EndCause
	case a.Connected:
		out.State = "connected"
	case a.Sessions > 0:
		out.State = "away"
	}
	if a.Work != nil {
		out.work(*a.Work)
	}
	return out
}

func (a *actor) work(w work.Work) {
	a.Status, a.Agent, a.Model, a.Life, a.PID = string(w.Status), w.Agent, w.Model, w.Life, w.Process.PID
	a.Machine, a.Label = w.Machine, w.Label
	if w.Machine != "" {
		a.Logs = w.Logs
	}
	a.StartedAt, a.FinishedAt = instant(w.StartedAt), instant(w.EndedAt)
	a.ExitCode, a.Signal, a.Cause, a.Worktree = w.ExitCode, w.Signal, w.Cause, w.Kept
	if w.Stop != nil && !w.Status.Final() {
		a.Stopping = w.Stop.Reason
	}
	if w.Reported {
		a.CostUSD = dollars(w.Spent)
	}
	if w.Total() > 0 || w.Reported {
		a.SpentUSD = dollars(w.Total())
	}
	if w.Budget > 0 {
		a.BudgetUSD = dollars(w.Budget)
	}
	a.LeasesHeld, a.LeasesLost = leaseNames(w.Held), leaseNames(w.Lost)
}

func leaseNames(list []work.LeaseName) (names []leaseName) {
	for _, l := range list {
		names = append(names, leaseName{l.Scope, l.Key, l.Reason})
	}
	return names
}

func dollars(m work.Money) *float64 {
	usd := m.USD()
	return &usd
}

// word returns the status or state of an actor.
func (a actor) word() string {
	if a.Status != "" {
		return a.Status
	}
	return a.State
}

func (l actorList) Text() string { return counted(len(l.Actors), "actor", "actors", l.Next) }

func listActors(ctx context.Context, se *dispatch.Session, a listActorsArgs) (actorList, error) {
	infos, next, err := se.Actors(ctx, a.After, a.Limit)
	if err != nil {
		return actorList{}, err
	}
	list := actorList{Actors: []actor{}, Next: next}
	found := branches{}
	for _, info := range infos {
		actor := actorOf(info, found)
		actor.You = info.ID == se.Actor().ID
		list.Actors = append(list.Actors, actor)
	}
	if n := fits(list.Actors); n < len(list.Actors) {
		list.Actors, list.Next = list.Actors[:n], list.Actors[n-1].Path
	}
	return list, nil
}
