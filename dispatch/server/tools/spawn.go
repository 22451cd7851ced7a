package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/work"
)

// spawnArgs are the arguments that spawn_sublead and spawn_worker share.
type spawnArgs struct {
	Name      string            `json:"name,omitempty" doc:"unique in your layer; default: W1, W2, … or S1, S2, …" min:"1" max:"64"`
	Prompt    string            `json:"prompt" doc:"its whole prompt: what to do, and what to report (≤ 256 KiB)" min:"1" max:"262144"`
	Agent     string            `json:"agent,omitempty" doc:"agent of the manifest; default: its default" min:"1" max:"64"`
	Model     string            `json:"model,omitempty" doc:"of the agent" min:"1" max:"128"`
	Directory string            `json:"directory,omitempty" doc:"relative to yours" min:"1" max:"4096"`
	Env       map[string]string `json:"env,omitempty" doc:"more environment variables"`
	Timeout   *seconds          `json:"timeout_secs,omitempty" doc:"then it is stopped as timed_out; default: the manifest's" min:"1" max:"2592000"`
	Machine   string            `json:"machine,omitempty" doc:"run it there, where leasehold launcher has that name; *: on any; default: the manifest's, else where the run is dispatched" max:"64"`
	Label     string            `json:"label,omitempty" doc:"or on a machine with this label" max:"64"`
}

func (a spawnArgs) spawn(role dispatch.Role) dispatch.Spawn {
	sp := dispatch.Spawn{
		Role: role, Name: a.Name, Prompt: a.Prompt, Agent: a.Agent, Model: a.Model, Directory: a.Directory,
		Env: a.Env, Placement: work.Placement{Machine: a.Machine, Label: a.Label},
	}
	if a.Timeout != nil {
		sp.Timeout = a.Timeout.duration()
	}
	return sp
}

type spawnSubleadArgs struct {
	spawnArgs
	BudgetUSD  *float64                   `json:"budget_usd,omitempty" doc:"for it and all below it, taken from yours; default: the manifest's" min:"0" max:"1000000"`
	MaxWorkers int                        `json:"max_workers,omitempty" doc:"at once, in its layer" min:"1" max:"1000"`
	InitialRef map[string]json.RawMessage `json:"initial_ref,omitempty" doc:"entries of its layer's /ref/, by path"`
	ReadDown   *bool                      `json:"read_down,omitempty" doc:"you may read its layer's store; default: the manifest's"`
}

type spawnWorkerArgs struct {
	spawnArgs
	Worktree *bool    `json:"worktree,omitempty" doc:"in its own git worktree, kept if it fails or has changes; default: the manifest's"`
	Tools    []string `json:"tools,omitempty" doc:"its agent's own tools that it may use; default: the profile's" max:"64"`
}

type spawned struct {
	ActorID   string          `json:"actor_id"`
	Name      string          `json:"name"`
	Path      string          `json:"path" told:"line"`
	Role      string          `json:"role" told:"line"`
	Status    string          `json:"status" jsonschema:"pending, or with finished how it ended" told:"line"`
	Agent     string          `json:"agent"`
	BudgetUSD *float64        `json:"budget_usd,omitempty" jsonschema:"reserved from yours"`
	Finished  bool            `json:"finished,omitempty" jsonschema:"it succeeded in an earlier life of the run: nothing was started"`
	Result    json.RawMessage `json:"result,omitempty" jsonschema:"of one that is finished"`
}

func (s spawned) Text() string {
	if s.Finished {
		return fmt.Sprintf("%s %s %s before this run was resumed; nothing was started", s.Role, s.Path, s.Status)
	}
	return fmt.Sprintf("%s %s is %s; actor_wait tells when it is finished and what it reported", s.Role, s.Path, s.Status)
}

func spawnedOf(made dispatch.Spawned, err error) (spawned, error) {
	if err != nil {
		return spawned{}, err
	}
	a := actorOf(made.ActorInfo, branches{})
	return spawned{
		ActorID: a.ActorID, Name: a.Name, Path: a.Path, Role: a.Role, Status: a.Status, Agent: a.Agent,
		BudgetUSD: a.BudgetUSD, Finished: made.Finished, Result: made.Result,
	}, nil
}

func spawnSublead(ctx context.Context, se *dispatch.Session, a spawnSubleadArgs) (spawned, error) {
	sp := a.spawn(dispatch.Sublead)
	sp.BudgetUSD, sp.MaxWorkers, sp.InitialRef, sp.ReadDown = a.BudgetUSD, a.MaxWorkers, a.InitialRef, a.ReadDown
	return spawnedOf(se.Spawn(ctx, sp))
}

func spawnWorker(ctx context.Context, se *dispatch.Session, a spawnWorkerArgs) (spawned, error) {
	sp := a.spawn(dispatch.Worker)
	sp.Worktree, sp.Tools = a.Worktree, a.Tools
	return spawnedOf(se.Spawn(ctx, sp))
}

type actorArg struct {
	Actor string `json:"actor" doc:"name in your layer, path, or actor_id" min:"1" max:"512"`
}

// An outcome is an actor with its report.
type outcome struct {
	actor
	Result json.RawMessage `json:"result,omitempty" jsonschema:"what it reported, else its last output"`
	Left   bool            `json:"result_left_out,omitempty" jsonschema:"it has a result, and those before it fill the answer: ask again for it"`
}

func outcomeOf(o dispatch.Outcome, b branches) outcome {
	return outcome{actor: actorOf(o.ActorInfo, b), Result: o.Result}
}

func (o outcome) Text() string {
	text := fmt.Sprintf("%s %s: %s", o.Role, o.Path, o.word())
	switch {
	case o.Cause != "":
		text += fmt.Sprintf(", %q", o.Cause)
	case o.Stopping != "":
		text += fmt.Sprintf(", told to stop: %q", o.Stopping)
	}
	return text
}

func actorStatus(ctx context.Context, se *dispatch.Session, a actorArg) (outcome, error) {
	o, err := se.Status(ctx, a.Actor)
	if err != nil {
		return outcome{}, err
	}
	out := outcomeOf(o, branches{})
	out.You = o.ID == se.Actor().ID
	return out, nil
}

type awaitArgs struct {
	Actors []string `json:"actors" doc:"names in your layer, paths, or actor_ids" min:"1" max:"1000"`
	Mode   string   `json:"mode,omitempty" doc:"until any is finished, or all are" enum:"any|all" default:"\"all\""`
	Wait   seconds  `json:"wait_secs" doc:"how long at most" min:"0" max:"50"`
}

type outcomes struct {
	Done   bool      `json:"done" jsonschema:"what was waited for has happened"`
	Actors []outcome `json:"actors" jsonschema:"in the order of the call"`
}

func (o outcomes) Text() string {
	var texts []string
	left := 0
	for _, a := range o.Actors {
		texts = append(texts, a.Path+" "+a.word())
		if a.Left {
			left++
		}
	}
	text := strings.Join(texts, ", ")
	if left > 0 {
		text += fmt.Sprintf("; %s left out: call actor_wait again with only the actors that have result_left_out", counted(left, "result is", "results are", ""))
	}
	if !o.Done {
		text += "; call actor_wait again to wait on"
	}
	return text
}

func awaitActors(ctx context.Context, se *dispatch.Session, a awaitArgs) (outcomes, error) {
	list, done, err := se.Await(ctx, caller(ctx), a.Actors, a.Mode == "all", a.Wait.duration())
	if err != nil {
		return outcomes{}, err
	}
	out := outcomes{Done: done, Actors: []outcome{}}
	found := branches{}
	for _, o := range list {
		out.Actors = append(out.Actors, outcomeOf(o, found))
	}
	size := 0
	for i := range out.Actors {
		one := &out.Actors[i]
		if size += len(one.Result); size > len(one.Result) && size > maxPage && one.Result != nil {
			one.Result, one.Left = nil, true
		}
	}
	return out, nil
}

type cancelArgs struct {
	actorArg
	Reason string `json:"reason" doc:"shown to everybody concerned (≤ 512 bytes)" min:"1" max:"512"`
}

func cancelActor(ctx context.Context, se *dispatch.Session, a cancelArgs) (outcome, error) {
	o, err := se.Cancel(ctx, a.Actor, a.Reason)
	if err != nil {
		return outcome{}, err
	}
	return outcomeOf(o, branches{}), nil
}

type reportArgs struct {
	Result json.RawMessage `json:"result" doc:"any JSON, ≤ 64 KiB; put more into a file or the store, and name it here"`
}

type reported struct {
	Reported bool `json:"reported"`
	root     bool // nobody waits for a root
}

func (r reported) Text() string {
	if r.root {
		return "reported"
	}
	return "reported; your lead reads it with actor_wait"
}

func report(ctx context.Context, se *dispatch.Session, a reportArgs) (reported, error) {
	return reported{true, se.Actor().Role == dispatch.Root}, se.Report(ctx, a.Result)
}
