package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/call"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// A Spawn is a request for a launched actor below the caller.
type Spawn struct {
	Role      Role   // Sublead or Worker
	Name      string // "": S1, S2, … or W1, W2, …
	Prompt    string
	Agent     string // "", here and below: as the manifest says for the role
	Model     string
	Directory string // relative to its lead's
	work.Placement
	Env        map[string]string
	Tools      []string
	Timeout    time.Duration
	BudgetUSD  *float64
	Worktree   *bool
	MaxWorkers int
	ReadDown   *bool
	InitialRef map[string]json.RawMessage // entries of its layer, below /ref/
}

// wish returns the requested order, in which fields may be unset.
func (sp Spawn) wish() work.Wish {
	return work.Wish{
		Order: work.Order{
			Name: sp.Name, Agent: sp.Agent, Model: sp.Model, Prompt: sp.Prompt, Directory: sp.Directory,
			Env: sp.Env, Tools: sp.Tools, TimeoutSecs: sp.Timeout.Seconds(), Placement: sp.Placement,
		},
		BudgetUSD: sp.BudgetUSD, Worktree: sp.Worktree,
	}
}

// A Spawned is the result of a spawn.
type Spawned struct {
	ActorInfo
	Finished bool            // the actor succeeded in an earlier life of the run, so it was not started
	Result   json.RawMessage // of that earlier life
}

// Spawn creates an actor below the session's own and orders its process, in one
// transaction. If it is refused, nothing changes.
//
// In a run that has been resumed, a name that belongs to an actor of an earlier
// life refers to that actor. If the actor succeeded, Spawn returns its result.
// Otherwise it is started again. A generated name refers to an earlier actor
// only if the order is the same.
func (se *Session) Spawn(ctx context.Context, sp Spawn) (made Spawned, err error) {
	if !se.actor.Role.Leads() {
		return Spawned{}, forbidden("%s is a %s and leads nobody: ask your lead to spawn; or put the work in a queue with task_enqueue", se.actor.Path, se.actor.Role)
	}
	if sp.Role != Sublead && sp.Role != Worker {
		return Spawned{}, &registry.ArgumentError{Argument: "role", Problem: "must be sublead or worker"}
	}
	ref, err := sp.initialRef(se.actor)
	if err != nil {
		return Spawned{}, err
	}
	ctx, stop := se.Within(ctx)
	defer stop()
	c := call.Of(ctx)
	try := func() error {
		from, err := se.skipEarlier(ctx, sp)
		if err != nil {
			return err
		}
		return rows.Update(ctx, se.state.eng, func(tx engine.Tx) (refusal error) {
			made, refusal = se.state.spawn(tx, se.party, sp, ref, from, c)
			return refusal
		})
	}
	if err = try(); errors.Is(err, ErrNoLauncher) && se.state.launchers.Returning(se.run.ID) {
		se.state.launchers.AwaitReturn(ctx, se.run.Name, se.run.ID)
		err = try()
	}
	if err = se.afterUndone(ctx, err, try); err != nil {
		return Spawned{}, err
	}
	return made, nil
}

// spawning is the kind of the recorded answer of a spawn, which is the id of
// the actor.
const spawning call.Kind = "spawn"

func (s *State) spawn(tx engine.Tx, p *party, sp Spawn, ref []kvstore.Write, from int, c call.Call) (Spawned, error) {
	if !sessionOpen(tx, p.id) {
		return Spawned{}, registry.ErrSessionEnded
	}
	lead, _ := getActor(tx, p.actor.ID)
	run, _ := getRun(tx, lead.Run)
	answer, again, err := c.Answered(tx, spawning)
	if err != nil {
		return Spawned{}, err
	}
	if id, bad := uuid.FromBytes([]byte(answer)); again && bad == nil {
		if a, ok := getActor(tx, id); ok {
			return Spawned{ActorInfo: s.info(tx, a, lead)}, nil
		}
	}
	d, boss, err := s.maySpawn(tx, run, lead)
	if err != nil {
		return Spawned{}, err
	}
	o := d.Settings.OrderFor(boss, sp.Role == Sublead, sp.wish())
	if err := o.Check(d.Agents); err != nil {
		return Spawned{}, err
	}
	name, earlier, err := nameFor(tx, d, lead, boss, sp, o, from)
	if err != nil {
		return Spawned{}, err
	}
	o.Name = name
	if earlier != nil {
		if w, _ := work.Get(tx, earlier.ID); w.Status == work.Succeeded {
			w.Met = d.Life
			work.Put(tx, w)
			return Spawned{s.info(tx, *earlier, lead), true, work.Result(tx, earlier.ID)}, nil
		}
	}
	chosen, err := s.choose(tx, run, d, o.Placement)
	if err != nil {
		return Spawned{}, err
	}
	path, err := admit(tx, run, lead, name)
	if err != nil {
		return Spawned{}, err
	}
	if err := work.Afford(tx, lead.Path, boss, work.USD(o.BudgetUSD)); err != nil {
		return Spawned{}, err
	}

	var a Actor
	if earlier != nil {
		a = *earlier
		revive(tx, run, &a)
	} else {
		a = makeMember(tx, run, lead, NewActor{Name: name, Role: sp.Role}, path)
	}
	a.ReadDown = sp.Role == Sublead && d.Settings.Sublead.ReadDown
	if sp.ReadDown != nil {
		a.ReadDown = sp.Role == Sublead && *sp.ReadDown
	}
	putActor(tx, a)
	if err := s.publish(tx, run, a, ref); err != nil {
		return Spawned{}, err
	}
	work.Give(tx, run.Name, a.ID, lead.ID, o)
	w := work.Amend(tx, a.ID, func(w *work.Work) {
		w.Placement = chosen
		w.Auto, w.MaxWorkers = sp.Name == "", sp.MaxWorkers
		if w.MaxWorkers == 0 && sp.Role == Sublead {
			w.MaxWorkers = d.Settings.Sublead.MaxWorkers
		}
	})
	c.Record(tx, spawning, string(a.ID[:]), 0)
	info := s.info(tx, a, lead)
	info.Work = &w
	return Spawned{ActorInfo: info}, nil
}

// undoSpawn stops an actor that its lead will never be told of. If it has no
// process yet, it ends at once.
func (e *ender) undoSpawn(answer string) {
	id, err := uuid.FromBytes([]byte(answer))
	a, ok := getActor(e.tx, id)
	if err != nil || !ok {
		return
	}
	reason := "the call that spawned it was cancelled"
	e.stop(a, end{Cause: "cancelled: " + reason, Stop: work.Stop{Reason: reason, Status: work.Cancelled, Undone: true}})
}

// A stoppingError refuses a name whose actor was spawned by a call that was cancelled,
// and is being stopped. Sent again, that call finds it.
type stoppingError struct {
	refusal error
	changes string // key of a row that changes before the name is free
}

func (e *stoppingError) Error() string { return e.refusal.Error() }
func (e *stoppingError) Unwrap() error { return e.refusal }

// undoneWait is how long a spawn waits for an actor that is being stopped.
const undoneWait = 30 * time.Second

// afterUndone tries a spawn again until the actor that has its name has stopped, and
// all below it, or undoneWait is over.
func (se *Session) afterUndone(ctx context.Context, err error, try func() error) error {
	waits, stop := context.WithTimeout(ctx, undoneWait)
	defer stop()
	for {
		before, ok := errors.AsType[*stoppingError](err)
		if !ok {
			return err
		}
		watch := se.state.eng.Watch(before.changes)
		waited := engine.Await(waits, watch, undoneWait, func(bool) error {
			err = try()
			if now, ok := errors.AsType[*stoppingError](err); ok && now.changes == before.changes {
				return engine.ErrWait
			}
			return nil
		})
		watch.Stop()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case waited != nil:
			return err
		}
	}
}

// maySpawn returns an error if nothing can start what lead spawns.
func (s *State) maySpawn(tx engine.Tx, run Run, lead Actor) (d work.Dispatched, boss work.Work, err error) {
	d, ok := work.RunOf(tx, run.Name)
	switch {
	case !ok:
		return d, boss, say(ErrNoLauncher, "run %q has no dispatcher, so it cannot start agents; ask the operator to run \"leasehold actor add\" and launch the agent", run.Name)
	case d.Drain != nil:
		return d, boss, &DrainingError{fmt.Sprintf("run %q", run.Name), d.Drain.Reason}
	case !s.launchers.Attached(run.ID):
		return d, boss, say(ErrNoLauncher, "the dispatcher of run %q is not connected, so it cannot start agents; try again, and if it does not return, ask the operator to run \"leasehold dispatch --resume %s\"", run.Name, run.Name)
	}
	boss, ok = work.Get(tx, lead.ID)
	switch {
	case !ok:
		return d, boss, forbidden("%s was added by an operator and not launched: only those that are launched launch others", lead.Path)
	case boss.Stop != nil:
		return d, boss, &DrainingError{lead.Path, boss.Stop.Reason}
	}
	return d, boss, nil
}

// MaySpawn reports whether the session's actor may spawn: it must be a launched
// lead of a dispatched run. If the records cannot be read, MaySpawn returns
// true, and a spawn reports the error.
func (se *Session) MaySpawn(ctx context.Context) bool {
	if !se.actor.Role.Leads() {
		return false
	}
	var dispatched, launched bool
	err := rows.View(ctx, se.state.eng, func(tx engine.Tx) error {
		_, dispatched = work.RunOf(tx, se.run.Name)
		_, launched = work.Get(tx, se.actor.ID)
		return nil
	})
	return err != nil || dispatched && launched
}

// skipEarlier returns the number of the first generated name that may refer to an
// actor of an earlier life with the same order. No name before it does so later in
// this life. It is found in a snapshot, because there may be many.
func (se *Session) skipEarlier(ctx context.Context, sp Spawn) (from int, err error) {
	if sp.Name != "" {
		return 1, nil
	}
	return from, rows.Snapshot(ctx, se.state.eng, func(tx engine.Tx) error {
		d, _ := work.RunOf(tx, se.run.Name)
		boss, _ := work.Get(tx, se.actor.ID)
		o := d.Settings.OrderFor(boss, sp.Role == Sublead, sp.wish())
		from, _ = earlierFrom(ctx, tx, d, se.actor, sp.Role, o, 1)
		return context.Cause(ctx)
	})
}

// earlierFrom finds the first actor of an earlier life whose name was generated
// and whose order was the same, from the nth name on. It returns nil, and the
// number of the first free name, if there is none.
func earlierFrom(ctx context.Context, tx engine.Tx, d work.Dispatched, lead Actor, role Role, o work.Order, n int) (int, *Actor) {
	sum := o.Sum()
	for ; d.Life > 1 && ctx.Err() == nil; n++ {
		m, taken := memberNamed(tx, lead.Leads, fmt.Sprint(letterOf(role), n))
		if !taken {
			break
		}
		if w, ok := work.Get(tx, m.ID); ok && w.Auto && w.Before(d.Life) && bytes.Equal(w.Sum, sum) && m.Role == role {
			return n, &m
		}
	}
	return n, nil
}

// letterOf begins the generated names of actors with a role.
func letterOf(role Role) string {
	if role == Sublead {
		return "S"
	}
	return "W"
}

// nameFor returns the name of the actor to be spawned and, if that name refers
// to an actor of an earlier life, that actor. from comes from skipEarlier.
func nameFor(tx engine.Tx, d work.Dispatched, lead Actor, boss work.Work, sp Spawn, o work.Order, from int) (name string, earlier *Actor, err error) {
	if sp.Name != "" {
		if err := CheckName(sp.Name); err != nil {
			return "", nil, err
		}
		m, taken := memberNamed(tx, lead.Leads, sp.Name)
		w, launched := work.Get(tx, m.ID)
		if taken && launched && w.Before(d.Life) && m.Role == sp.Role {
			return sp.Name, &m, nil
		}
		answered := launched && w.Met == d.Life // an earlier spawn of this life has returned its old result
		if taken && launched && w.Stop != nil && w.Stop.Undone && !reusable(tx, m) {
			busy := &stoppingError{changes: actorKey(m.ID)}
			if m.Ended() {
				busy.changes = layerKey(m.Leads)
			}
			busy.refusal = say(ErrExists, "the layer of %s has an actor named %q, which is being stopped, because the call that spawned it was cancelled; try again soon, or choose another name", lead.Path, sp.Name)
			return "", nil, busy
		}
		if taken && (answered || !reusable(tx, m)) || sp.Name == lead.Name {
			return "", nil, say(ErrExists, "the layer of %s already has an actor named %q; choose another name", lead.Path, sp.Name)
		}
		return sp.Name, nil, nil
	}
	n, m := earlierFrom(context.Background(), tx, d, lead, sp.Role, o, from)
	if m != nil {
		return m.Name, m, nil
	}
	letter, given := letterOf(sp.Role), boss.Workers
	if sp.Role == Sublead {
		given = boss.Subleads
	}
	given = max(given, n-1) // the names before n are taken
	for {
		given++
		name = fmt.Sprint(letter, given)
		if _, taken := memberNamed(tx, lead.Leads, name); !taken && name != lead.Name {
			break
		}
	}
	work.Amend(tx, lead.ID, func(w *work.Work) {
		if sp.Role == Sublead {
			w.Subleads = given
		} else {
			w.Workers = given
		}
	})
	return name, nil, nil
}

// revive makes an ended actor live again.
func revive(tx engine.Tx, run Run, a *Actor) {
	run, _ = getRun(tx, run.Name)
	run.Actors++
	putRun(tx, run)
	if a.Role != Root {
		l, _ := getLayer(tx, a.Layer)
		l.Members++
		putLayer(tx, l)
	}
	a.EndedAt, a.EndCause, a.EndedBy, a.Held = time.Time{}, "", "", nil
	putActor(tx, *a)
	note(tx, run, *a, event.Event{Kind: event.ActorBegan, Cause: string(a.Role) + ", again"})
}

// initialRef returns the initial entries of a sub-lead's layer, by path. It checks
// them and brings them into their stored form, which takes long for large ones, so
// it is called before the transaction.
func (sp Spawn) initialRef(lead Actor) (entries []kvstore.Write, err error) {
	if len(sp.InitialRef) > 0 && sp.Role != Sublead {
		return nil, &registry.ArgumentError{Argument: "initial_ref", Problem: "must be left out for a worker, which has no layer"}
	}
	for _, path := range slices.Sorted(maps.Keys(sp.InitialRef)) {
		full := path
		if !strings.HasPrefix(path, "/") {
			full = "/" + kvstore.Ref + "/" + path
		}
		p, err := kvstore.ParsePath(full)
		if err != nil || p.Root() != kvstore.Ref {
			return nil, &registry.ArgumentError{Argument: "initial_ref", Problem: fmt.Sprintf("must have paths below /%s/, not %.80q", kvstore.Ref, path)}
		}
		w, err := kvstore.Write{Path: p, Value: sp.InitialRef[path], By: lead.Path}.Compact()
		if err != nil {
			return nil, badRef(p, err)
		}
		entries = append(entries, w)
	}
	return entries, nil
}

func badRef(p kvstore.Path, err error) error {
	if bad, ok := errors.AsType[*registry.ArgumentError](err); ok {
		return &registry.ArgumentError{Argument: "initial_ref", Problem: fmt.Sprintf("%s: %s", p, bad.Problem)}
	}
	return fmt.Errorf("initial_ref %s: %w", p, err)
}

// publish writes the initial entries of a sub-lead's layer.
func (s *State) publish(tx engine.Tx, run Run, a Actor, entries []kvstore.Write) error {
	// Not the store that s.layer keeps: that would stay after a refused spawn.
	store := kvstore.New(s.eng, s.core.Registry(layerScope(a.Leads)), a.Leads, run.Caps.Store).In(tx)
	for _, w := range entries {
		if _, err := store.Set(w); err != nil {
			return badRef(w.Path, err)
		}
	}
	return nil
}
