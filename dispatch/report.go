package dispatch

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// LaunchStarted notes the process of an actor.
func (s *State) LaunchStarted(ctx context.Context, se *Session, name string, actor uuid.UUID, pid int) error {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return err
	}
	process := s.opts.Process(pid).Peer
	process.PID, process.Transport = pid, "unix"
	var before int
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		w, a, err := workIn(tx, l, actor)
		if err != nil {
			return err
		}
		if w.Status.Final() {
			return forbidden("%s is %s already: end process %d", a.Path, w.Status, pid)
		}
		before, w.Status, w.Process = w.Process.PID, Running, process
		if w.StartedAt.IsZero() {
			w.StartedAt = tx.Now()
		}
		putWork(tx, w)
		if record, ok := get[sessionRecord](tx, sessionKey(w.Session)); ok {
			record.Peer = process
			putSession(tx, record)
		}
		if w.Stop == nil {
			putUnfinished(tx, l.run, actor, nothing)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.forget(before, actor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[pid] = launchedProcess{process, actor}
	return nil
}

// LaunchExited notes how the process of an actor ended. To report an end again
// changes nothing.
func (s *State) LaunchExited(ctx context.Context, se *Session, name string, actor uuid.UUID, e Exit) (info ActorInfo, result []byte, err error) {
	if !e.Status.known() || !e.Status.Final() {
		return ActorInfo{}, nil, &registry.ArgumentError{Argument: "status", Problem: "must be one that is final"}
	}
	l, err := s.launcherOf(se, name)
	if err != nil {
		return ActorInfo{}, nil, err
	}
	var ended []uuid.UUID
	var pid int
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		w, a, err := workIn(tx, l, actor)
		if err != nil {
			return err
		}
		if !w.Status.Final() {
			run, _ := getRun(tx, name)
			ended = s.endWork(tx, run, a, e)
			a, _ = getActor(tx, actor)
		}
		pid = w.Process.PID
		info, result = s.info(tx, a), resultOf(tx, actor)
		return nil
	})
	if err != nil {
		return ActorInfo{}, nil, err
	}
	s.forget(pid, actor)
	s.sever(ended, fmt.Errorf("the process of actor %s of run %s has ended: %s", info.Path, name, e.Status))
	return info, result, nil
}

// forget removes a process that is gone.
func (s *State) forget(pid int, actor uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[pid].actor == actor {
		delete(s.processes, pid)
	}
}

// workIn finds a work of a launcher's run.
func workIn(tx engine.Tx, l *launcher, actor uuid.UUID) (Work, Actor, error) {
	w, ok := getWork(tx, actor)
	a, _ := getActor(tx, actor)
	if !ok || a.Run != l.name {
		return Work{}, Actor{}, notFound("launched actor %s in run %q", actor, l.name)
	}
	return w, a, nil
}
