package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// A Dispatch is a request to start a run whose actors are launched, or to
// continue one.
type Dispatch struct {
	Run      string
	Root     work.Order
	Agents   []string // those that an order may name
	Settings work.Settings
	Resume   bool      // go on with a run whose launcher is gone
	Attach   uuid.UUID // the same launcher again: its run's id; Root, Agents and Settings stand
	Instance string    // of the launcher's process, which chose it at random; "": it is known by its peer
	Plan     string    // for the launchers of other machines, who get it as it is

	// A launcher may attach while its last connection is still counted as open.
	// That connection is then no longer the launcher.
}

// DispatchRun makes se, an operator's session, the launcher of a run.
func (s *State) DispatchRun(ctx context.Context, se *Session, req Dispatch) (info RunInfo, err error) {
	if se.actor.Role != Operator {
		return RunInfo{}, forbidden("%s is an actor; runs are dispatched by an operator", se.actor.Path)
	}
	if err := cmp.Or(CheckRun(req.Run), s.opts.Partition.check(req.Run)); err != nil {
		return RunInfo{}, err
	}
	if req.Resume {
		// Agents that died with the launcher are counted as lost first, so that
		// they do not count as unfinished below.
		for _, l := range s.launchers.Away() {
			if l.Name != req.Run {
				continue
			}
			if err := s.sweep(ctx, l, 0); err != nil {
				return RunInfo{}, err
			}
		}
	}
	l := work.NewLauncher(se.ctx, req.Run, se.peer)
	l.Instance = req.Instance
	undo := func() {}
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		run, err := s.begin(tx, req, se.peer)
		if err != nil {
			return err
		}
		l.Run = run.ID
		undo = s.setLauncher(l) // set here, because the next transaction may check for a launcher
		return nil
	})
	if err != nil {
		undo()
		return RunInfo{}, err
	}
	if req.Resume {
		s.tellDrain(req.Run, nil) // to sessions from before, of a run that has ended and goes on
	}
	context.AfterFunc(se.ctx, func() { s.launchers.Leave(l) })
	return s.runNow(ctx, req.Run)
}

// setLauncher makes l the launcher of its run. undo restores the previous one.
func (s *State) setLauncher(l *work.Launcher) (undo func()) {
	s.mu.Lock()
	clear(s.layers) // the limits of their stores may have changed
	s.mu.Unlock()
	return s.launchers.Set(l)
}

// launcherOf is the launcher of a run, or of a machine that serves it, if se is it.
func (s *State) launcherOf(se *Session, name string) (*work.Launcher, error) {
	l, ok := s.launchers.Of(se.ctx, name)
	if !ok {
		return nil, forbidden("this connection is not the launcher of run %q: begin with operator_run_dispatch, or operator_launch_join", name)
	}
	return l, nil
}

// dispatcherOf is the launcher that dispatches a run, if se is it.
func (s *State) dispatcherOf(se *Session, name string) (*work.Launcher, error) {
	l, err := s.launcherOf(se, name)
	if err == nil && l.Machine != "" {
		return nil, forbidden("this connection serves run %q for machine %q, and does not dispatch it", name, l.Machine)
	}
	return l, err
}

// begin creates the requested run, or checks that an existing one can be
// continued.
func (s *State) begin(tx engine.Tx, req Dispatch, peer process.Peer) (Run, error) {
	run, exists := getRun(tx, req.Run)
	d, dispatched := work.RunOf(tx, req.Run)
	switch {
	case req.Attach != uuid.Nil:
		if !dispatched || d.RunID != req.Attach || !run.EndedAt.IsZero() {
			return Run{}, say(ErrNotFound, "this daemon has no living run %q with the id %s; nothing can go on with it", req.Run, req.Attach)
		}
		same := peer.PID != 0 && peer == d.Launcher || req.Instance != "" && req.Instance == d.Instance
		if s.launchers.Attached(run.ID) && !same {
			return Run{}, say(ErrExists, "run %q already has a dispatcher; a run has only one", req.Run)
		}
		work.AmendRun(tx, run.Name, func(d *work.Dispatched) { d.Launcher = peer })
		return run, nil
	case req.Resume:
		if !dispatched {
			return Run{}, say(ErrNotFound, "run %q was not dispatched; leave out --resume to begin it", req.Run)
		}
		work.AmendRun(tx, run.Name, func(d *work.Dispatched) { d.Instance = req.Instance })
		work.PutPlan(tx, run.Name, req.Plan)
		return run, s.resumeRun(tx, run, d, req, peer)
	case exists && run.EndedAt.IsZero() && !dispatched:
		return Run{}, say(ErrExists, "run %q already exists and was not started by leasehold dispatch; end it (leasehold actor end --run %s root) or choose another name", req.Run, req.Run)
	case exists && run.EndedAt.IsZero() && s.launchers.Attached(run.ID):
		return Run{}, say(ErrExists, "run %q is already dispatched by process %d; wait for it to end, or choose another name", req.Run, d.Launcher.PID)
	case exists && run.EndedAt.IsZero():
		return Run{}, say(ErrExists, "run %q already exists and is not finished; resume it (leasehold dispatch --resume %s) or end it (leasehold actor end --run %s root)", req.Run, req.Run, req.Run)
	}
	if err := CheckName(req.Root.Name); err != nil {
		return Run{}, err
	}
	o := rootOrder(req)
	if err := o.Check(req.Agents); err != nil {
		return Run{}, err
	}
	root := s.makeRun(tx, NewActor{Run: req.Run, Name: o.Name, Role: Root, Caps: capsOf(req.Settings)})
	run, _ = getRun(tx, req.Run)
	work.AmendRun(tx, run.Name, func(d *work.Dispatched) {
		*d = work.Dispatched{RunID: run.ID, Life: 1, Agents: req.Agents, Settings: req.Settings, Launcher: peer, Instance: req.Instance}
	})
	work.PutPlan(tx, run.Name, req.Plan)
	work.Give(tx, run.Name, root.ID, uuid.Nil, o)
	return run, nil
}

// capsOf returns the limits that a manifest sets.
func capsOf(s work.Settings) Caps {
	store := kvstore.Limits{ValueBytes: s.Store.MaxValueBytes, Bytes: int64(s.Store.MaxBytes), Entries: s.Store.MaxEntries}
	return Caps{Depth: s.MaxDepth, LayerActors: s.MaxWorkersPerLayer, RunActors: s.MaxActors, Store: store}
}

// rootOrder returns the order of the root. The budget of the run is the budget
// of its root.
func rootOrder(req Dispatch) work.Order {
	o := req.Root
	if req.Settings.BudgetUSD > 0 {
		o.BudgetUSD = req.Settings.BudgetUSD
	}
	return o
}

// resumeRun starts a run again: its root gets a new order. Actors that the root
// spawns again keep the state they have.
func (s *State) resumeRun(tx engine.Tx, run Run, d work.Dispatched, req Dispatch, peer process.Peer) error {
	root, _ := getActor(tx, run.Root)
	w, _ := work.Get(tx, run.Root)
	switch {
	case s.launchers.Attached(run.ID):
		return say(ErrExists, "run %q is already dispatched by process %d; wait for it to end, or choose another name", run.Name, d.Launcher.PID)
	case d.Unfinished > 0:
		return fmt.Errorf("run %q cannot be resumed yet: %d of its actors have processes, or a dispatcher that may come back; end those processes, or try again in %s", run.Name, d.Unfinished, s.opts.DetachedGrace)
	case w.Status == work.Succeeded:
		// The launcher did not finish the run, or could not record that it had.
		// Only that is left to do, so no new life begins.
		work.AmendRun(tx, run.Name, func(d *work.Dispatched) { d.Launcher = peer })
		return nil
	}
	req.Root.Name = root.Name
	o := rootOrder(req)
	if err := o.Check(req.Agents); err != nil {
		return err
	}
	run.EndedAt = time.Time{}
	run.Caps = capsOf(req.Settings).or(s.opts.Caps).or(defaultCaps)
	putRun(tx, run)
	work.AmendRun(tx, run.Name, func(d *work.Dispatched) {
		d.Life++
		d.Agents, d.Settings, d.Drain, d.Launcher = req.Agents, req.Settings, nil, peer
	})
	if root.Ended() {
		revive(tx, run, &root)
	}
	work.Give(tx, run.Name, root.ID, uuid.Nil, o)
	return nil
}
