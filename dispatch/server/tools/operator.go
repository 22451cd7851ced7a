package tools

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/layer"
	"github.com/leasehold/leasehold/registry"
)

// Operators returns the tools that leasehold's own commands call. Agents do not
// see them.
func Operators(state *dispatch.State) []Tool {
	o := &operator{state: state, watches: make(map[uuid.UUID]*engine.Watch)}
	read := Effect{ReadOnly: true, Idempotent: true}
	return append(append(o.launchTools(), o.accessTools()...), []Tool{
		tool("operator_actor_add", "Make an actor", "Make an actor without launching it; its token is shown only once.", Effect{}, o.addActor),
		tool("operator_actor_end", "End an actor", "End an actor and its sub-tree: tokens void, sessions ended, leases handed over.", Effect{Destructive: true}, o.endActor),
		tool("operator_actor_token", "Issue a new token", "Issue a new token for a living actor; it is shown only once, and the old one is void. The actor's sessions continue.", Effect{Destructive: true}, o.reissueToken),
		tool("operator_run_remove", "Delete a run", "Delete a run that has ended, with its actors, stores and tasks, before its retention is over.", Effect{Destructive: true}, o.removeRun),
		tool("operator_tree", "See runs and their actors", "All runs, or one, each with its tree.", read, o.showTree),
		tool("operator_leases", "See the leases of a run", "All leases of a run and of its layers.", read, o.showLeases),
		tool("operator_events", "See what happened in a run", "Events of a run in the order of their revisions: leases, refused writes, sessions, actors, tasks.", read, o.showEvents),
		tool("operator_lease_check", "Check a token", "Whether a token is that of the latest grant of a lease.", read, o.checkToken),
		tool("operator_lease_revoke", "Take a lease away", "Take a lease of a run away from those who hold it; they are told who revoked it and why.", Effect{Destructive: true}, o.revokeLease),
		tool("operator_kv", "See the store of a layer", "Entries of one layer's store.", read, o.showStore),
		tool("operator_queue_stats", "See the queues of a run", "How many tasks each queue has, by state.", read, inRun(o, showQueues)),
		tool("operator_queue_list", "See the tasks of a run", "Tasks of one queue or all, in one state or all that are not finished.", read, inRun(o, showTasks)),
		tool("operator_task", "See a task of a run", "Everything about a task and its attempts, except its token.", read, inRun(o, getTask[showTaskArgs])),
		tool("operator_task_cancel", "Cancel a task of a run", "Cancel an unfinished task. Its worker is told STALE_TOKEN.", Effect{Idempotent: true, Destructive: true}, inRun(o, cancelTask[showTaskArgs])),
		tool("operator_queue_redrive", "Try dead tasks of a run again", "Return dead tasks to their queue with a fresh set of attempts: those named, or the first 100.", Effect{}, inRun(o, redriveRun)),
		tool("operator_queue_pause", "Pause a queue of a run", "Give none of its tasks to workers until it is resumed. What is in progress goes on, and tasks can be enqueued.", Effect{Idempotent: true}, inRun(o, pauseQueue)),
		tool("operator_queue_resume", "Resume a queue of a run", "End the pause of a queue; workers that wait get its tasks.", Effect{Idempotent: true}, inRun(o, resumeQueue)),
		tool("operator_clocks", "Read the daemon's clocks", "The daemon's clocks at one instant, to be compared with those of the caller.", read, o.readClocks),
		tool("operator_watch", "Wait for a change", "Answers at the first call, then whenever anything has changed since the last.", read, o.waitForChange),
	}...)
}

type operator struct {
	state *dispatch.State

	mu      sync.Mutex
	watches map[uuid.UUID]*engine.Watch // of sessions that have called operator_watch
}

type runArg struct {
	Run string `json:"run" doc:"name of the run" min:"1" max:"64"`
}

func (a runArg) run() string { return a.Run }

type addActorArgs struct {
	runArg
	Name     string `json:"name" doc:"unique in its layer" min:"1" max:"64"`
	Role     string `json:"role" doc:"its role in the tree" enum:"root|sublead|worker"`
	Parent   string `json:"parent,omitempty" doc:"path of its lead; default: the root" max:"512"`
	ReadDown bool   `json:"read_down,omitempty" doc:"the parent may read a sub-lead's layer" default:"false"`
	MaxDepth int    `json:"max_depth,omitempty" doc:"with role root: names in a path of this run" min:"1" max:"32"`
	tokenTTLArg
}

type tokenTTLArg struct {
	TTL seconds `json:"token_ttl_secs,omitempty" doc:"until its token expires, which opens no session then; those that are open last; default: when the actor ends" min:"1" max:"315360000"`
}

type addedActor struct {
	ActorID string `json:"actor_id"`
	Run     string `json:"run"`
	Path    string `json:"path"`
	Token   string `json:"token" jsonschema:"secret, shown once" told:"never"`
	tokenEnd
}

// tokenEnd says when the token of an actor expires.
type tokenEnd struct {
	ExpiresAt stamp `json:"token_expires_at,omitempty" jsonschema:"absent: when the actor ends"`
}

func (a addedActor) Text() string { return fmt.Sprintf("actor %s added to run %s", a.Path, a.Run) }

func (o *operator) addActor(ctx context.Context, _ *dispatch.Session, a addActorArgs) (addedActor, error) {
	made, token, err := o.state.AddActor(ctx, dispatch.NewActor{
		Run: a.Run, Name: a.Name, Role: dispatch.Role(a.Role), Parent: a.Parent, ReadDown: a.ReadDown,
		Caps: dispatch.Caps{Depth: a.MaxDepth}, TokenTTL: a.TTL.duration(),
	})
	return addedActor{made.ID.String(), made.Run, made.Path, token, tokenEnd{instant(made.TokenExpires)}}, err
}

type endActorArgs struct {
	runArg
	Path   string `json:"path" doc:"of the actor; root ends the run" min:"1" max:"512"`
	Reason string `json:"reason,omitempty" doc:"shown to everybody concerned" max:"512" default:"\"ended by the operator\""`
}

type endedActor struct {
	Run  string `json:"run"`
	Path string `json:"path"`
}

func (a endedActor) Text() string { return fmt.Sprintf("actor %s of run %s ended", a.Path, a.Run) }

func (o *operator) endActor(ctx context.Context, _ *dispatch.Session, a endActorArgs) (endedActor, error) {
	return endedActor{a.Run, dispatch.PathOf(a.Path)}, o.state.EndActor(ctx, a.Run, a.Path, a.Reason)
}

type actorTokenArgs struct {
	runArg
	Path string `json:"path" doc:"of the actor" min:"1" max:"512"`
	tokenTTLArg
}

type issuedToken addedActor

func (t issuedToken) Text() string {
	return fmt.Sprintf("actor %s of run %s has a new token", t.Path, t.Run)
}

func (o *operator) reissueToken(ctx context.Context, _ *dispatch.Session, a actorTokenArgs) (issuedToken, error) {
	actor, token, err := o.state.ReissueToken(ctx, a.Run, a.Path, a.TTL.duration())
	return issuedToken{actor.ID.String(), actor.Run, actor.Path, token, tokenEnd{instant(actor.TokenExpires)}}, err
}

type removedRun struct {
	Run     string `json:"run"`
	Removed bool   `json:"removed"`
}

func (r removedRun) Text() string { return fmt.Sprintf("run %s is deleted", r.Run) }

func (o *operator) removeRun(ctx context.Context, _ *dispatch.Session, a runArg) (removedRun, error) {
	err := o.state.RemoveRun(ctx, a.Run)
	return removedRun{a.Run, err == nil}, err
}

type treeArgs struct {
	Run    string `json:"run,omitempty" doc:"default: all runs" max:"64"`
	After  string `json:"after,omitempty" doc:"next of the previous reply" max:"600"`
	Limit  int    `json:"limit,omitempty" doc:"how many actors at most" min:"1" max:"1000" default:"1000"`
	Actors bool   `json:"actors,omitempty" doc:"false: the runs alone; then limit counts runs" default:"true"`
	Ended  bool   `json:"ended,omitempty" doc:"false: without runs and actors that have ended; a run that is named is listed even so, and a run has its root" default:"true"`
}

const maxTree = 1000

type runList struct {
	Next string `json:"next,omitempty" jsonschema:"there are more: ask again with after; the first run of that reply may be the last of this one, with the rest of its actors"`
	Runs []run  `json:"runs"`

	Ended int `json:"ended,omitempty" jsonschema:"runs left out because they have ended; in the first reply only"`

	Missing []int `json:"missing,omitempty" jsonschema:"partitions that no server leads at present, and whose runs are left out"`
}

type run struct {
	Run       string  `json:"run"`
	CreatedAt stamp   `json:"created_at"`
	EndedAt   stamp   `json:"ended_at,omitempty"`
	Actors    []actor `json:"actors"`

	RunID    string `json:"run_id"`
	Ended    int    `json:"ended,omitempty" jsonschema:"actors left out because they have ended; only where the run first appears"`
	Count    int    `json:"actor_count,omitempty" jsonschema:"with actors: false: how many actors it has, living and ended"`
	Life     int    `json:"life,omitempty" jsonschema:"of a dispatched run: 1, and one more each time it was resumed"`
	Draining string `json:"draining,omitempty" jsonschema:"why nothing is spawned any more"`

	Interrupted bool `json:"interrupted,omitempty" jsonschema:"its dispatcher and its agents are gone; leasehold dispatch --resume goes on with it"`
}

func (l runList) Text() string {
	text := counted(len(l.Runs), "run", "runs", l.Next)
	if len(l.Missing) > 0 {
		text += fmt.Sprintf("; those of %s are left out, which no server leads at present", counted(len(l.Missing), "partition", "partitions", ""))
	}
	return text
}

func (o *operator) showTree(ctx context.Context, _ *dispatch.Session, a treeArgs) (runList, error) {
	find := o.state.RunsAfter
	if !a.Actors {
		find = o.state.RunsAlone
	}
	page, err := find(ctx, dispatch.RunQuery{Name: a.Run, After: a.After, Limit: a.Limit, Living: !a.Ended})
	if err != nil {
		return runList{}, err
	}
	list := runList{Runs: []run{}, Next: page.Next, Ended: page.Ended}
	found := branches{}
	for _, info := range page.Runs {
		r := run{
			Run: info.Name, CreatedAt: stampOf(info.CreatedAt), EndedAt: instant(info.EndedAt), Actors: []actor{},
			RunID: info.ID.String(), Ended: info.Ended, Count: info.Count, Interrupted: info.Interrupted,
		}
		if d := info.Dispatched; d != nil {
			r.Life = d.Life
			if d.Drain != nil {
				r.Draining = d.Drain.Reason
			}
		}
		for _, a := range info.Actors {
			r.Actors = append(r.Actors, actorOf(a, found))
		}
		list.Runs = append(list.Runs, r)
	}
	return list, nil
}

type showLeasesArgs struct {
	runArg
	Scope  string `json:"scope,omitempty" doc:"whose leases" enum:"layer|run|all" default:"\"all\""`
	Prefix string `json:"prefix,omitempty" doc:"only names and keys that start with this" max:"512"`
	After  string `json:"after,omitempty" doc:"next of the previous reply" max:"600"`
	Limit  int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"1000"`
	Layer  string `json:"layer,omitempty" doc:"path of a lead: only its layer's" max:"512"`
}

func (o *operator) showLeases(ctx context.Context, _ *dispatch.Session, a showLeasesArgs) (leaseList, error) {
	if a.Layer != "" && a.Scope == string(dispatch.RunScope) {
		return leaseList{}, &registry.ArgumentError{Argument: "layer", Problem: "must be left out with scope run"}
	}
	page, err := o.state.RunLeases(ctx, a.Run, a.Layer, dispatch.LeaseQuery{Scopes: scopesOf(a.Scope), Prefix: a.Prefix, After: a.After, Limit: a.Limit})
	if err != nil {
		return leaseList{}, err
	}
	return leaseListOf(page, uuid.Nil), nil
}

type showStoreArgs struct {
	runArg
	Layer  string `json:"layer,omitempty" doc:"path of the layer's lead" default:"\"root\"" max:"512"`
	Glob   string `json:"glob,omitempty" default:"\"/**\"" max:"512"`
	After  string `json:"after,omitempty" doc:"next of the previous reply" max:"512"`
	Limit  int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"100"`
	Values bool   `json:"values,omitempty" doc:"with their values" default:"true"`
}

func (o *operator) showStore(ctx context.Context, _ *dispatch.Session, a showStoreArgs) (entryList, error) {
	view, err := o.state.RunStore(ctx, a.Run, a.Layer)
	if err != nil {
		return entryList{}, err
	}
	return listEntries(ctx, view, layer.Listing{Glob: a.Glob, After: a.After, Limit: a.Limit, Values: a.Values})
}

type clocks struct {
	BootID    string `json:"boot_id" jsonschema:"identifies this boot of the machine; empty if unknown"`
	RunningMS int64  `json:"running_ms" jsonschema:"reading of the clock that goes on during sleep and that nobody can set"`
	Now       stamp  `json:"now" jsonschema:"the running clock of the state, which measures leases, claims and delays"`
	Wall      stamp  `json:"wall" jsonschema:"the wall clock, which run_at and retention follow"`
	SteppedMS int64  `json:"stepped_ms" jsonschema:"by how much the wall clock was set since the daemon started"`
}

func (c clocks) Text() string { return "the wall clock says " + string(c.Wall) }

func (o *operator) readClocks(ctx context.Context, _ *dispatch.Session, _ struct{}) (clocks, error) {
	c, err := o.state.Clocks(ctx)
	return clocks{c.Boot, c.Running.Milliseconds(), stampOf(c.Now), stampOf(c.Wall), c.Stepped.Milliseconds()}, err
}

type watchArgs struct {
	Wait seconds `json:"wait_secs,omitempty" doc:"how long at most" min:"0" max:"50" default:"50"`
}

type changed struct {
	Changed bool `json:"changed"`
}

func (c changed) Text() string {
	if c.Changed {
		return "changed"
	}
	return "no change"
}

// waitForChange keeps one watch for each session, from the session's first call
// until its end, so that changes between two calls are not missed.
func (o *operator) waitForChange(ctx context.Context, se *dispatch.Session, a watchArgs) (changed, error) {
	o.mu.Lock()
	watch, ok := o.watches[se.ID()]
	if !ok {
		watch = o.state.Changes()
		o.watches[se.ID()] = watch
		context.AfterFunc(se.Context(), func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			delete(o.watches, se.ID())
			watch.Stop()
		})
	}
	o.mu.Unlock()
	if !ok {
		return changed{true}, nil
	}
	ctx, stop := se.Within(ctx)
	defer stop()
	timeout := time.NewTimer(a.Wait.duration())
	defer timeout.Stop()
	select {
	case <-watch.C:
		return changed{true}, nil
	case <-timeout.C:
		return changed{false}, nil
	case <-ctx.Done():
		return changed{}, context.Cause(ctx)
	}
}
