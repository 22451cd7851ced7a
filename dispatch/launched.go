package dispatch

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// LaunchStarted notes the process of an actor, and the directory of its logs.
func (s *State) LaunchStarted(ctx context.Context, se *Session, name string, actor uuid.UUID, pid int, logs string) error {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return err
	}
	p := process.Peer{PID: pid, Transport: l.Peer.Transport, Machine: elsewhere}
	if !l.Remote() {
		p = s.opts.Process(pid).Peer
		p.PID, p.Transport, p.Machine = pid, "unix", l.Peer.Machine
	}
	var before int
	// A process that runs must be known, also on a full disk.
	err = rows.Update(engine.Needed(ctx), s.eng, func(tx engine.Tx) error {
		w, a, err := ownWork(tx, l, actor)
		if err != nil {
			return err
		}
		if w.Status.Final() {
			return forbidden("%s is %s already: end process %d", a.Path, w.Status, pid)
		}
		before = w.Process.PID
		w.Logs = logs
		work.Started(tx, l.Run, w, p)
		if record, ok := rows.Get[sessionRecord](tx, sessionKey(w.Session)); ok {
			record.Peer = p
			putSession(tx, record)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.launchers.Started(actor, p, before)
	return nil
}

// elsewhere is the Machine of a process that a launcher elsewhere has started: pids mean
// something only to that.
const elsewhere = "of its launcher"

// notKept is the result of an actor whose output a full disk had no room for.
const notKept = "the disk of the daemon's state was almost full, so the end of the output was not kept here; leasehold logs shows the output"

// LaunchExited records how the process of an actor ended. A repeated report
// changes nothing. On a full disk the actor ends too, but its output may be missing.
func (s *State) LaunchExited(ctx context.Context, se *Session, name string, actor uuid.UUID, exit work.Exit) (info ActorInfo, result []byte, err error) {
	if !exit.Status.Known() || !exit.Status.Final() {
		return ActorInfo{}, nil, &registry.ArgumentError{Argument: "status", Problem: "must be a final status"}
	}
	l, err := s.launcherOf(se, name)
	if err != nil {
		return ActorInfo{}, nil, err
	}
	var pid int
	conclude := func(e *ender) error {
		tx := e.tx
		w, a, err := ownWork(tx, l, actor)
		if err != nil {
			return err
		}
		if !w.Status.Final() {
			run, _ := getRun(tx, name)
			e.work(run, a, exit)
			a, _ = getActor(tx, actor)
		}
		pid = w.Process.PID
		info, result = s.info(tx, a, operatorActor), work.Result(tx, actor)
		return nil
	}
	if err = s.endingIfRoom(ctx, conclude); errors.Is(err, engine.ErrFull) {
		if exit.Output != "" {
			exit.Output = notKept
		}
		err = s.ending(ctx, conclude)
	}
	if err != nil {
		return ActorInfo{}, nil, err
	}
	s.launchers.Ended(actor, pid)
	return info, result, nil
}

// ownWork finds a work that was handed out to a launcher.
func ownWork(tx engine.Tx, l *work.Launcher, actor uuid.UUID) (work.Work, Actor, error) {
	w, a, err := workIn(tx, l, actor)
	if err == nil && !l.Owns(w) {
		err = forbidden("%s was not handed out to %s", a.Path, l)
	}
	return w, a, err
}

// workIn finds a work in the run of a launcher.
func workIn(tx engine.Tx, l *work.Launcher, actor uuid.UUID) (work.Work, Actor, error) {
	w, ok := work.Get(tx, actor)
	a, _ := getActor(tx, actor)
	if !ok || a.Run != l.Name {
		return work.Work{}, Actor{}, notFound("launched actor %s in run %q", actor, l.Name)
	}
	return w, a, nil
}
