package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A Dispatch begins a run whose actors are launched, or goes on with one.
type Dispatch struct {
	Run      string
	Root     Order
	Agents   []string // those that an order can name
	Settings Settings
	Resume   bool      // go on with a run whose launcher is gone
	Attach   uuid.UUID // the same launcher again: its run's id; Root, Agents and Settings stand

	// A process may attach while its last connection is still believed to
	// stand: that one is no launcher from then on.
}

// DispatchRun makes se, an operator's session, the launcher of a run.
func (s *State) DispatchRun(ctx context.Context, se *Session, req Dispatch) (info RunInfo, err error) {
	if se.actor.Role != Operator {
		return RunInfo{}, forbidden("%s is an actor; runs are dispatched by an operator", se.actor.Path)
	}
	if err := CheckRun(req.Run); err != nil {
		return RunInfo{}, err
	}
	if req.Resume {
		// Whoever went with the launcher is counted as lost before it is asked
		// whether anybody is left.
		for _, l := range s.launchersAway() {
			if l.name != req.Run {
				continue
			}
			if err := s.sweep(ctx, l); err != nil {
				return RunInfo{}, err
			}
		}
	}
	l := &launcher{name: req.Run, peer: se.peer, party: se.party, given: make(map[uuid.UUID]string)}
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		run, err := s.begin(tx, req, se.peer)
		if err != nil {
			return err
		}
		l.run = run.ID
		d, _ := getDispatched(tx, run.Name)
		root, _ := getActor(tx, run.Root)
		info = RunInfo{run, &d, s.tree(tx, root, nil)}
		s.appoint(l) // here, since the next transaction may ask whether there is one
		return nil
	})
	if err != nil {
		s.dismiss(l)
		return RunInfo{}, err
	}
	context.AfterFunc(se.ctx, func() { s.launcherAway(l) })
	return info, nil
}

// begin makes the run that is asked for, or finds it as it must be.
func (s *State) begin(tx engine.Tx, req Dispatch, peer Peer) (Run, error) {
	run, exists := getRun(tx, req.Run)
	d, dispatched := getDispatched(tx, req.Run)
	switch {
	case req.Attach != uuid.Nil:
		if !dispatched || d.RunID != req.Attach || !run.EndedAt.IsZero() {
			return Run{}, notFound("run %q with the id %s, to go on with", req.Run, req.Attach)
		}
		if s.launched(run.ID) && (peer.PID == 0 || peer != d.Launcher) {
			return Run{}, fmt.Errorf("a launcher of run %q: %w; there is one to a run", req.Run, ErrExists)
		}
		amendDispatched(tx, run.Name, func(d *Dispatched) { d.Launcher = peer })
		return run, nil
	case req.Resume:
		if !dispatched {
			return Run{}, notFound("a dispatched run %q; leave out --resume to begin one", req.Run)
		}
		return run, s.resumeRun(tx, run, d, req, peer)
	case exists && run.EndedAt.IsZero() && !dispatched:
		return Run{}, fmt.Errorf("run %q: %w, and its actors are not launched; end it (leasehold actor end --run %s root) or choose another name", req.Run, ErrExists, req.Run)
	case exists && run.EndedAt.IsZero() && s.launched(run.ID):
		return Run{}, fmt.Errorf("run %q: %w, under process %d; wait for it to end, or choose another name", req.Run, ErrExists, d.Launcher.PID)
	case exists && run.EndedAt.IsZero():
		return Run{}, fmt.Errorf("run %q: %w, unfinished; go on with it (leasehold dispatch --resume %s) or end it (leasehold actor end --run %s root)", req.Run, ErrExists, req.Run, req.Run)
	}
	if err := CheckName(req.Root.Name); err != nil {
		return Run{}, err
	}
	o := rootOrder(req)
	if err := o.check(req.Agents); err != nil {
		return Run{}, err
	}
	root := s.makeRun(tx, NewActor{Run: req.Run, Name: o.Name, Role: Root, Caps: req.Settings.caps()})
	run, _ = getRun(tx, req.Run)
	put(tx, dispatchedKey(run.Name), Dispatched{
		RunID: run.ID, Life: 1, Agents: req.Agents, Settings: req.Settings, Launcher: peer,
	}, uuid.Nil)
	s.order(tx, run, root, uuid.Nil, o)
	return run, nil
}

// rootOrder is the root's order: the budget of a run is its root's.
func rootOrder(req Dispatch) Order {
	o := req.Root
	if req.Settings.Budget > 0 {
		o.Budget = req.Settings.Budget
	}
	return o
}

// resumeRun begins another life of a run: its root is started again, and those
// it spawns again are met as they are.
func (s *State) resumeRun(tx engine.Tx, run Run, d Dispatched, req Dispatch, peer Peer) error {
	root, _ := getActor(tx, run.Root)
	w, _ := getWork(tx, run.Root)
	switch {
	case s.launched(run.ID):
		return fmt.Errorf("run %q: %w, under process %d; wait for it to end, or choose another name", run.Name, ErrExists, d.Launcher.PID)
	case d.Unfinished > 0:
		return fmt.Errorf("run %q cannot be resumed yet: %d of its actors have processes, or a dispatcher that may come back; end those processes, or try again in %s", run.Name, d.Unfinished, s.opts.DetachedGrace)
	case w.Status == Succeeded:
		// Its launcher did not come to finish it, or to note that it had. That
		// is left to do, and nothing else: no life begins.
		amendDispatched(tx, run.Name, func(d *Dispatched) { d.Launcher = peer })
		return nil
	}
	req.Root.Name = root.Name
	o := rootOrder(req)
	if err := o.check(req.Agents); err != nil {
		return err
	}
	run.EndedAt = time.Time{}
	run.Caps = req.Settings.caps().or(s.opts.Caps).or(defaultCaps)
	putRun(tx, run)
	amendDispatched(tx, run.Name, func(d *Dispatched) {
		d.Life++
		d.Agents, d.Settings, d.Drain, d.Launcher = req.Agents, req.Settings, nil, peer
	})
	if root.Ended() {
		revive(tx, run, &root)
	}
	s.order(tx, run, root, uuid.Nil, o)
	return nil
}
