package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// errUnwatched is why a session ends whose process went while nobody who would
// tell was there.
var errUnwatched = errors.New("its process is gone")

// sweepSoon wakes tendLaunchers.
func (s *State) sweepSoon() {
	select {
	case s.away <- struct{}{}:
	default:
	}
}

// tendLaunchers looks after the runs whose launcher is away, once a second
// while there are any: nothing tells when a process that is not our child
// ends.
func (s *State) tendLaunchers(ctx context.Context) error {
	tick := time.NewTicker(detachedPoll)
	defer tick.Stop()
	for {
		away := s.launchersAway()
		for _, l := range away {
			if err := s.sweep(ctx, l); err != nil {
				return err
			}
		}
		due := tick.C
		if len(away) == 0 {
			due = nil
		}
		select {
		case <-due:
		case <-s.away:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// launchersAway are those who have left a run behind.
func (s *State) launchersAway() (list []*launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.launchers {
		if l.attachedLocked() {
			continue
		}
		if l.party != nil { // ended just now
			l.party, l.since = nil, time.Now()
		}
		list = append(list, l)
	}
	return list
}

// sweep ends what went while a run's launcher was away: the sessions of
// processes that are gone, at once, and their works as lost if the launcher
// cannot come back and say more. One that can is given the time that detached
// sessions have.
func (s *State) sweep(ctx context.Context, l *launcher) error {
	var run Run
	var works []Work
	deep := make(map[uuid.UUID]int)
	err := s.eng.View(ctx, func(tx engine.Tx) error {
		run, _ = getRun(tx, l.name)
		for id := range unfinished(tx, l.run) {
			w, _ := getWork(tx, id)
			a, _ := getActor(tx, id)
			deep[id] = depth(a)
			works = append(works, w)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The end of a lead would cancel those below it that have not begun.
	slices.SortFunc(works, func(a, b Work) int { return deep[b.Actor] - deep[a.Actor] })
	if run.ID != l.run || !run.EndedAt.IsZero() {
		s.dismiss(l)
		return nil
	}
	lost := l.peer.PID != 0 && !s.opts.Alive(l.peer) || time.Since(s.awaySince(l)) >= s.opts.DetachedGrace
	left := len(works)
	for _, w := range works {
		switch {
		case w.Process.PID != 0 && s.opts.Alive(w.Process):
		case lost:
			if err := s.lose(ctx, run, w); err != nil {
				return err
			}
			left--
		case w.Status == Running:
			if err := s.endSessionsOf(ctx, w.Actor); err != nil {
				return err
			}
		}
	}
	if lost && left == 0 {
		s.dismiss(l)
	}
	return nil
}

func (s *State) awaySince(l *launcher) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.since
}

// lose makes a work lost, unless its launcher is back.
func (s *State) lose(ctx context.Context, run Run, w Work) error {
	cause := "its dispatcher is gone, and so is its process"
	if w.Process.PID == 0 {
		cause = "its dispatcher went before it had a process"
	}
	var ended []uuid.UUID
	err := s.eng.Update(ctx, func(tx engine.Tx) error {
		if s.launched(run.ID) {
			return nil
		}
		now, _ := getWork(tx, w.Actor)
		if now.Status.Final() {
			return nil
		}
		a, _ := getActor(tx, w.Actor)
		ended = s.endWork(tx, run, a, Exit{Status: Lost, Cause: cause})
		return nil
	})
	if err != nil {
		return err
	}
	s.forget(w.Process.PID, w.Actor)
	s.sever(ended, fmt.Errorf("an actor of run %s is lost: %s", run.Name, cause))
	return nil
}

// endSessionsOf ends the sessions of an actor that lives on in the books.
func (s *State) endSessionsOf(ctx context.Context, actor uuid.UUID) error {
	var sessions []uuid.UUID
	err := s.eng.View(ctx, func(tx engine.Tx) error {
		for se := range sessionsOf(tx, actor) {
			sessions = append(sessions, se.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range sessions {
		s.mu.Lock()
		delete(s.held, id)
		if p, ok := s.parties[id]; ok {
			p.ending = true
		}
		s.mu.Unlock()
		if err := s.endSession(id, errUnwatched); err != nil {
			return err
		}
	}
	return nil
}

// recoverLaunched remembers, after a restart, the runs whose works are not
// final: their launchers are away, and the sessions of their processes are
// kept open.
func (s *State) recoverLaunched(ctx context.Context) error {
	return s.eng.View(ctx, func(tx engine.Tx) error {
		for row := range tx.Scan(dispatchedPrefix) {
			name := row.Key[len(dispatchedPrefix):]
			run, ok := getRun(tx, name)
			if !ok || !run.EndedAt.IsZero() {
				continue
			}
			d := decode[Dispatched](row)
			s.launchers[run.ID] = &launcher{run: run.ID, name: name, peer: d.Launcher, since: time.Now()}
			for id := range unfinished(tx, run.ID) {
				w, _ := getWork(tx, id)
				if w.handedOut() {
					s.held[w.Session] = struct{}{}
				}
				if w.Process.PID != 0 {
					s.processes[w.Process.PID] = launchedProcess{w.Process, w.Actor}
				}
			}
		}
		return nil
	})
}
