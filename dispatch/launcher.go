package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// A launcher is who starts the processes of one run: an operator's session, or
// the memory of one that is away.
type launcher struct {
	run   uuid.UUID
	name  string
	peer  Peer      // its process; zero: not known
	party *party    // nil while it is away; under State.mu
	since time.Time // away since; under State.mu

	mu    sync.Mutex           // one answer at a time is put together
	given map[uuid.UUID]string // what this attachment was told to do about each actor
}

// appoint makes l the launcher of its run.
func (s *State) appoint(l *launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launchers[l.run] = l
	clear(s.layers) // the bounds of their stores may be others now
}

// returning reports whether a run's launcher is away and may come back.
func (s *State) returning(run uuid.UUID) bool {
	s.mu.Lock()
	l := s.launchers[run]
	away := l != nil && !l.attachedLocked()
	s.mu.Unlock()
	return away && s.opts.Alive(l.peer)
}

// launcherPause is how long a spawn waits for a launcher that may come back:
// after a restart of the daemon its agents may be there before it.
const launcherPause = 5 * time.Second

// awaitLauncher waits until a run's launcher is back or will not be.
func (s *State) awaitLauncher(ctx context.Context, run Run) {
	watch := s.eng.Watch(dispatchedKey(run.Name)) // stands before the first look
	defer watch.Stop()
	timeout := time.NewTimer(launcherPause)
	defer timeout.Stop()
	for s.returning(run.ID) {
		select {
		case <-watch.C:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// launched reports whether a run's launcher is connected.
func (s *State) launched(run uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.launchers[run]
	return l != nil && l.attachedLocked()
}

// attachedLocked reports whether the launcher's session lives. It asks the
// session itself: that has ended before anybody is told.
func (l *launcher) attachedLocked() bool { return l.party != nil && l.party.ctx.Err() == nil }

// launcherAway notes that a launcher's session has ended. Its run waits for it.
func (s *State) launcherAway(l *launcher) {
	s.mu.Lock()
	if l.party != nil {
		l.party, l.since = nil, time.Now()
	}
	s.mu.Unlock()
	s.sweepSoon()
}

// dismiss forgets the launcher of a run that has ended.
func (s *State) dismiss(l *launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launchers[l.run] == l {
		delete(s.launchers, l.run)
	}
}

// launcherOf is the launcher of a run, if se is it.
func (s *State) launcherOf(se *Session, name string) (*launcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.launchers {
		if l.name == name && l.party == se.party && l.attachedLocked() {
			return l, nil
		}
	}
	return nil, forbidden("this connection is not the launcher of run %q: begin with operator_run_dispatch", name)
}

// hold keeps a session open while no connection has it: that of a process that
// is launched. It ends with its actor.
func (s *State) hold(session uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[session] = struct{}{}
}

// letGo takes back holds of sessions that did not come to be.
func (s *State) letGo(sessions []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sessions {
		delete(s.held, id)
	}
}
