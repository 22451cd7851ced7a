package dispatch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// errUnwatched is the cause when a session ends because its process ended while
// no launcher was there to report it.
var errUnwatched = errors.New("its process is gone")

// tendLaunchers checks the runs whose launcher is away, once a second while
// there are any. It polls because the system does not report the end of a
// process that is not our child.
func (s *State) tendLaunchers(ctx context.Context) error {
	tick := time.NewTicker(detachedPoll)
	defer tick.Stop()
	step := time.Duration(0)
	for {
		away := s.launchers.Away()
		for _, l := range away {
			if err := s.sweep(ctx, l, step); err != nil {
				return err
			}
		}
		due := tick.C
		if len(away) == 0 {
			due = nil
		}
		select {
		case <-due:
			step = detachedPoll
		case <-s.launchers.Left():
			step = 0
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sweep handles processes that ended while the launcher of their run was away.
// Their sessions end at once. Their works become lost if the launcher cannot
// come back and report more; a launcher that still can is given the same time
// as detached sessions. step is the time since the last check.
func (s *State) sweep(ctx context.Context, l *work.Launcher, step time.Duration) error {
	var run Run
	var works []work.Work
	deep := make(map[uuid.UUID]int)
	err := rows.View(ctx, s.eng, func(tx engine.Tx) error {
		run, _ = getRun(tx, l.Name)
		for id := range work.Unfinished(tx, l.Run) {
			w, _ := work.Get(tx, id)
			a, _ := getActor(tx, id)
			deep[id] = depth(a)
			works = append(works, w)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Deepest first: the end of a lead cancels those below it that have not
	// begun.
	slices.SortFunc(works, func(a, b work.Work) int { return deep[b.Actor] - deep[a.Actor] })
	if run.ID != l.Run || !run.EndedAt.IsZero() {
		s.launchers.Forget(l)
		return nil
	}
	lost := s.launchers.Gone(l) || s.launchers.Missed(l, step) >= s.opts.DetachedGrace
	left := len(works)
	for _, w := range works {
		switch {
		case w.Process.PID != 0 && s.opts.Alive(w.Process):
		case lost:
			if err := s.lose(ctx, run, w); err != nil {
				return err
			}
			left--
		case w.Status == work.Running:
			if err := s.endSessionsOf(ctx, w.Actor); err != nil {
				return err
			}
		}
	}
	if lost && left == 0 {
		s.launchers.Forget(l)
	}
	return nil
}

// lose gives a work the status lost, unless its launcher is back.
func (s *State) lose(ctx context.Context, run Run, w work.Work) error {
	cause := "its dispatcher is gone, and so is its process"
	if w.Process.PID == 0 {
		cause = "its dispatcher went before it had a process"
	}
	err := s.ending(ctx, func(e *ender) error {
		tx := e.tx
		if s.launchers.Attached(run.ID) {
			return nil
		}
		now, _ := work.Get(tx, w.Actor)
		if now.Status.Final() {
			return nil
		}
		a, _ := getActor(tx, w.Actor)
		e.work(run, a, work.Exit{Status: work.Lost, Cause: cause})
		return nil
	})
	if err != nil {
		return err
	}
	s.launchers.Ended(w.Actor, w.Process.PID)
	return nil
}

// endSessionsOf ends the sessions of an actor whose work stays unfinished.
func (s *State) endSessionsOf(ctx context.Context, actor uuid.UUID) error {
	var sessions []uuid.UUID
	err := rows.View(ctx, s.eng, func(tx engine.Tx) error {
		for se := range sessionsOf(tx, actor) {
			sessions = append(sessions, se.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, id := range sessions {
		s.launchers.UnkeepOpen(id)
		s.mu.Lock()
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

// recoverLaunched registers, after a restart, the runs whose works are not
// final. Their launchers count as away, and the sessions of their processes are
// kept open.
func (s *State) recoverLaunched(ctx context.Context) error {
	return rows.View(ctx, s.eng, func(tx engine.Tx) error {
		for name, d := range work.Runs(tx) {
			run, ok := getRun(tx, name)
			if !ok || !run.EndedAt.IsZero() {
				continue
			}
			var works []work.Work
			for id := range work.Unfinished(tx, run.ID) {
				w, _ := work.Get(tx, id)
				works = append(works, w)
			}
			s.launchers.Recover(name, d, works)
		}
		return nil
	})
}
