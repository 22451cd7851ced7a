package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// errUnwatched is the cause when a session ends because its process ended while
// no launcher was there to report it.
var errUnwatched = errors.New("its process is gone")

// errSilent is the cause when the connection of a launcher is ended that does not ask for
// orders.
var errSilent = fmt.Errorf("its launcher has asked for no orders for %v", work.SilentLimit)

// tendLaunchers checks the runs whose launcher is away, and the launchers of further
// machines, once a second while there are any. It polls because the system does not
// report the end of a process that is not our child, or that a process is frozen.
func (s *State) tendLaunchers(ctx context.Context) error {
	tick := time.NewTicker(detachedPoll)
	defer tick.Stop()
	step := time.Duration(0)
	for {
		silent, watched := s.launchers.Silent(step)
		for _, l := range silent {
			l.HangUp(errSilent)
		}
		away := s.launchers.Away()
		for _, l := range away {
			if err := s.sweep(ctx, l, step); err != nil {
				return err
			}
		}
		due := tick.C
		if len(away) == 0 && !watched {
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

// sweep checks the works of a launcher that is away. If a process is gone, sweep ends its
// sessions at once. The works without a live process become lost once the launcher
// cannot come back, or has been away for DetachedGrace. step is the time since the last
// sweep.
func (s *State) sweep(ctx context.Context, l *work.Launcher, step time.Duration) error {
	run, works, err := s.worksOf(ctx, l.Name, l.Run, l.Owns)
	if err != nil {
		return err
	}
	if run.ID != l.Run || !run.EndedAt.IsZero() {
		s.launchers.Forget(l)
		return nil
	}
	gone := s.launchers.Gone(l) || s.launchers.Missed(l, step) >= s.opts.DetachedGrace
	var left int
	var lost []work.Work
	for _, w := range works {
		switch {
		case w.Process.PID != 0 && !w.Process.Elsewhere() && s.opts.Alive(w.Process):
			left++
		case gone:
			lost = append(lost, w)
		case w.Status == work.Running && !w.Process.Elsewhere():
			left++
			if err := s.endSessionsOf(ctx, w.Actor); err != nil {
				return err
			}
		default:
			left++
		}
	}
	if err := s.loseAll(ctx, run, l, lost, func() bool { return s.attached(l) }); err != nil {
		return err
	}
	if gone && left == 0 {
		s.launchers.Forget(l)
	}
	return nil
}

// attached reports whether a launcher is connected for l's run and machine.
func (s *State) attached(l *work.Launcher) bool {
	if l.Machine == "" {
		return s.launchers.Attached(l.Run)
	}
	_, attached := s.launchers.Machine(l.Run, l.Machine)
	return attached
}

// worksOf returns the run called name, and those of its unfinished works that counts
// selects. The deepest come first, because the end of a lead would cancel the works below
// it that have not begun.
func (s *State) worksOf(ctx context.Context, name string, id uuid.UUID, counts func(work.Work) bool) (run Run, works []work.Work, err error) {
	deep := make(map[uuid.UUID]int)
	err = rows.Snapshot(ctx, s.eng, func(tx engine.Tx) error {
		run, works = Run{}, nil
		run, _ = getRun(tx, name)
		for actor := range work.Unfinished(tx, id) {
			if w, _ := work.Get(tx, actor); counts(w) {
				a, _ := getActor(tx, actor)
				deep[actor] = depth(a)
				works = append(works, w)
			}
		}
		return nil
	})
	slices.SortFunc(works, func(a, b work.Work) int { return deep[b.Actor] - deep[a.Actor] })
	return run, works, err
}

// loseAll marks the works of a launcher as lost, unless the launcher is back. If the
// launcher is not the dispatcher, loseAll also writes to the leads and the root.
func (s *State) loseAll(ctx context.Context, run Run, l *work.Launcher, works []work.Work, back func() bool) error {
	var lost []work.Work
	for _, w := range works {
		done, err := s.lose(ctx, run, l, w, back)
		if err != nil {
			return err
		}
		if done {
			lost = append(lost, w)
		}
	}
	if l.Machine == "" || len(lost) == 0 {
		return nil
	}
	return s.tellLost(ctx, run, l, lost)
}

// lose marks a work as lost, unless its launcher is back.
func (s *State) lose(ctx context.Context, run Run, l *work.Launcher, w work.Work, back func() bool) (lost bool, err error) {
	cause := fmt.Sprintf("%s is gone, and so is its process", l)
	if w.Process.PID == 0 {
		cause = fmt.Sprintf("%s went before it had a process", l)
	}
	err = s.ending(ctx, func(e *ender) error {
		tx := e.tx
		lost = false
		if back() {
			return nil
		}
		now, _ := work.Get(tx, w.Actor)
		if now.Status.Final() {
			return nil
		}
		a, _ := getActor(tx, w.Actor)
		e.work(run, a, work.Exit{Status: work.Lost, Cause: cause})
		lost = true
		return nil
	})
	if err != nil || !lost {
		return false, err
	}
	s.launchers.Ended(w.Actor, w.Process.PID)
	return true, nil
}

// maxLostNamed bounds how many agents a message about a lost machine names.
const maxLostNamed = 20

// tellLost writes to the root, and to the leads of the works that were lost with a
// machine.
func (s *State) tellLost(ctx context.Context, run Run, l *work.Launcher, lost []work.Work) error {
	return rows.Update(ctx, s.eng, func(tx engine.Tx) error {
		to := map[uuid.UUID][]string{run.Root: nil}
		for _, w := range lost {
			a, _ := getActor(tx, w.Actor)
			to[run.Root] = append(to[run.Root], a.Path)
			if w.Lead != uuid.Nil && w.Lead != run.Root {
				to[w.Lead] = append(to[w.Lead], a.Path)
			}
		}
		for id, paths := range to {
			a, ok := getActor(tx, id)
			if !ok || a.Ended() {
				continue
			}
			more := ""
			if n := len(paths) - maxLostNamed; n > 0 {
				paths, more = paths[:maxLostNamed], fmt.Sprintf(" and %d more", n)
			}
			m := mail.Message{
				ID: uuid.New(), Sender: run.ID, From: operatorPath, At: tx.Wall(),
				Text: fmt.Sprintf("%s is lost, and with it the agents that ran there: %s%s. What they held is released. Spawn again what is still needed: without machine or label it runs where the run is dispatched.",
					l, strings.Join(paths, ", "), more),
			}
			if limit, ok := errors.AsType[*registry.LimitError](mail.Post(tx, id, m)); ok {
				_ = limit // the inbox is full; actor_list and actor_wait report the loss too
				continue
			}
			note(tx, run, a, event.Event{Kind: event.MessageSent, Key: m.ID.String(), By: a.Path})
		}
		return nil
	})
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
