package dispatch

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A Join asks to make a connection the launcher of a further machine of a run.
type Join struct {
	Run      string
	Machine  string
	Labels   []string
	Instance string // chosen at random by the launcher's process
}

// A Joined is the run that a launcher serves.
type Joined struct {
	RunID uuid.UUID
	Life  int
	Plan  string // the dispatcher's, unchanged
}

// MaxLabels bounds the labels of a machine.
const MaxLabels = 32

func (j Join) check() error {
	if err := CheckRun(j.Run); err != nil {
		return err
	}
	if err := work.CheckMachine("machine", j.Machine); err != nil {
		return err
	}
	if len(j.Labels) > MaxLabels {
		return &registry.ArgumentError{Argument: "labels", Problem: fmt.Sprintf("must be at most %d", MaxLabels)}
	}
	for _, label := range j.Labels {
		if err := work.CheckMachine("labels", label); err != nil {
			return err
		}
	}
	if len(j.Instance) < minInstance || len(j.Instance) > maxInstance {
		return &registry.ArgumentError{Argument: "instance", Problem: fmt.Sprintf("must be from %d to %d bytes, chosen at random", minInstance, maxInstance)}
	}
	return nil
}

const minInstance, maxInstance = 16, 64

// JoinRun makes se, an operator's session, the launcher of a machine that serves a run.
// The same process may join again even if its last connection still counts as open.
// Another process may join only once the last one is away. The works that the last one
// started are then lost, because the new process knows nothing of them.
func (s *State) JoinRun(ctx context.Context, se *Session, j Join) (joined Joined, err error) {
	if se.actor.Role != Operator {
		return Joined{}, forbidden("%s is an actor; machines serve a run by an operator", se.actor.Path)
	}
	if err := j.check(); err != nil {
		return Joined{}, err
	}
	l := work.NewLauncher(se.ctx, j.Run, se.peer)
	l.Machine, l.Labels, l.Instance = j.Machine, j.Labels, j.Instance
	l.HangUp = func(cause error) { _ = se.Close(cause) } // it is no session of a run, and holds nothing
	if err := s.loseBefore(ctx, l); err != nil {
		return Joined{}, err
	}
	undo := func() {}
	err = rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		run, ok := getRun(tx, j.Run)
		d, dispatched := work.RunOf(tx, j.Run)
		if !ok || !dispatched || !run.EndedAt.IsZero() {
			return say(ErrNotFound, "run %q is not dispatched; leasehold dispatch begins it", j.Run)
		}
		if before, attached := s.launchers.Machine(run.ID, j.Machine); attached && before.Instance != j.Instance {
			return say(ErrExists, "machine %q serves run %q already, by another launcher; end that one, or choose another name", j.Machine, j.Run)
		}
		l.Run = run.ID
		joined = Joined{RunID: run.ID, Life: d.Life, Plan: work.Plan(tx, j.Run)}
		work.AmendRun(tx, j.Run, func(d *work.Dispatched) { d.Orders++ }) // wakes the calls that watch the run
		undo = s.launchers.Set(l)
		return nil
	})
	if err != nil {
		undo()
		return Joined{}, err
	}
	context.AfterFunc(se.ctx, func() { s.launchers.Leave(l) })
	s.launchers.Wake()
	return joined, nil
}

// loseBefore marks the works as lost that another process had started on this machine.
func (s *State) loseBefore(ctx context.Context, l *work.Launcher) error {
	run, err := s.runNamed(ctx, l.Name)
	if err != nil || run.ID == uuid.Nil {
		return err
	}
	before, attached := s.launchers.Machine(run.ID, l.Machine)
	if before == nil || attached || before.Instance == l.Instance {
		return nil
	}
	_, works, err := s.worksOf(ctx, l.Name, run.ID, func(w work.Work) bool { return before.Owns(w) && w.HandedOut() })
	if err != nil {
		return err
	}
	return s.loseAll(ctx, run, before, works, func() bool { return s.attached(before) })
}

func (s *State) runNamed(ctx context.Context, name string) (run Run, err error) {
	return run, rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, _ = getRun(tx, name)
		return nil
	})
}

// LeaveRun stops further works from being placed on a machine. When its connection then
// ends, the machine counts as gone at once.
func (s *State) LeaveRun(_ context.Context, se *Session, name string) error {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return err
	}
	if l.Machine == "" {
		return forbidden("this connection dispatches run %q: drain it with operator_run_drain", name)
	}
	s.launchers.BeginLeaving(l)
	return nil
}

// choose finds the machine for a spawn: of the machines that match the placement, the
// one with the fewest unfinished works. If none is connected, it refuses the spawn,
// because nobody could say when one will be.
func (s *State) choose(tx engine.Tx, run Run, d work.Dispatched, p work.Placement) (work.Placement, error) {
	if p == (work.Placement{}) {
		return p, nil
	}
	fit, all := s.launchers.Fitting(run.ID, p)
	if len(fit) == 0 {
		others := "there is no launcher"
		if len(all) > 0 {
			others = "there are launchers on " + strings.Join(all, ", ")
		}
		return p, say(ErrNoLauncher, "no launcher serves run %q on %s; %s; leave out machine and label to run it where the run is dispatched, or ask the operator to run \"leasehold launcher --run %s\" on such a machine", run.Name, p, others, run.Name)
	}
	if len(fit) > 1 {
		load := make(map[string]int)
		for id := range work.Unfinished(tx, d.RunID) {
			w, _ := work.Get(tx, id)
			load[w.Machine]++
		}
		for _, name := range fit[1:] {
			if load[name] < load[fit[0]] {
				fit[0] = name
			}
		}
	}
	return work.Placement{Machine: fit[0]}, nil
}
