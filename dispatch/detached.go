package dispatch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// httpIdle is how long an HTTP client may be silent, also after a restart. No
// connection shows whether the client still exists. The reply to initialize
// tells the client this limit.
const httpIdle = 15 * time.Minute

// A detached session was connected before a restart, and its process has not resumed it.
// Other processes may share it meanwhile.
type detached struct {
	peer   process.Peer
	known  process.Peer  // what is stored of it, which names it on its own machine
	gone   bool          // a server of that machine has said that it has ended
	mark   string        // of its client, if that is elsewhere
	missed time.Duration // while this machine was awake
}

// errProcessGone is the cause when a session ends because its process was gone
// after a restart.
var errProcessGone = errors.New("its process had gone when the daemon restarted")

// errNotResumed is the cause when a session ends because its process did not
// connect again.
var errNotResumed = errors.New("it was not resumed after the daemon restarted")

// recoverSessions ends the sessions whose process is gone. It keeps the others
// so that their processes can resume them.
func (s *State) recoverSessions(ctx context.Context) error {
	var guests []sessionRecord
	err := rows.View(ctx, s.eng, func(tx engine.Tx) error {
		for row := range tx.Scan(SessionPrefix) {
			record, ok := rows.Decode[sessionRecord](tx, row)
			if !ok || s.launchers.KeptOpen(record.ID) {
				continue // ended by its launcher, or by the sweep
			}
			if record.Guest && s.opts.Alive(record.Peer) {
				guests = append(guests, record)
				continue
			}
			s.detached[record.ID] = detached{peer: record.Peer.Here(), known: record.Peer, mark: record.Origin.Mark}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, d := range s.detached {
		if d.peer.PID != 0 && !s.opts.Alive(d.peer) {
			if err := s.endSession(id, errProcessGone); err != nil {
				return err
			}
		}
	}
	for _, record := range guests {
		if err := s.recoverGuest(ctx, record); err != nil {
			return err
		}
	}
	return nil
}

// detachedPoll is the interval at which the processes of detached sessions are
// checked. The system does not report the end of a process that is not our
// child.
const detachedPoll = time.Second

// tendDetached ends detached sessions whose process has ended, or that nobody
// has resumed for too long. It returns nil once none is left, because only a
// restart creates them.
func (s *State) tendDetached(ctx context.Context) error {
	tick := time.NewTicker(detachedPoll)
	defer tick.Stop()
	for {
		waiting := s.waitingDetached()
		if len(waiting) == 0 {
			return nil
		}
		for id, d := range waiting {
			cause, err := s.detachedEnd(ctx, id, d)
			if err != nil {
				return err
			}
			if cause != nil && s.abandon(id) {
				if err := s.endSession(id, cause); err != nil {
					return err
				}
			}
		}
		select {
		case <-tick.C: // does not tick while the machine sleeps
			s.missDetached(detachedPoll)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// back notes that a process has resumed a session. It may only share the session, as each
// call in a program of leasehold exec does: then the process that opened the session is
// still awaited, and the session does not end with the call. Two processes can be told apart
// only if they were seen from the same machine.
func (s *State) back(id uuid.UUID, peer process.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.detached[id].known
	if cmp.Or(owner.PID, owner.Away) == 0 || owner.Machine != peer.Machine || owner.Same(peer) {
		delete(s.detached, id)
	}
}

// ProcessGone says that a process has ended, which may have run on another
// machine. The sessions of it that nobody has resumed end soon.
func (s *State) ProcessGone(peer process.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.detached {
		if d.known.Same(peer) {
			d.gone = true
			s.detached[id] = d
		}
	}
}

// missDetached adds step to the time for which each detached session has been
// away.
func (s *State) missDetached(step time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.detached {
		d.missed += step
		s.detached[id] = d
	}
}

func (s *State) waitingDetached() map[uuid.UUID]detached {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := make(map[uuid.UUID]detached, len(s.detached))
	maps.Copy(waiting, s.detached)
	return waiting
}

// detachedEnd returns the cause if a detached session must end now, or nil.
func (s *State) detachedEnd(ctx context.Context, id uuid.UUID, d detached) (cause, err error) {
	if d.gone || d.peer.PID != 0 && !s.opts.Alive(d.peer) {
		return errProcessGone, nil
	}
	limit := s.opts.DetachedGrace
	if d.peer.Transport == "http" {
		limit = max(limit, httpIdle)
	}
	switch {
	case d.missed < limit:
		return nil, nil
	case d.peer.PID == 0:
		// Nobody here can see whether the client lives. If it does, it has
		// been told the same limit, or has lost its way to all servers, which
		// ends a session sooner than this when no daemon restarts.
		return errNotResumed, nil
	}
	err = rows.View(ctx, s.eng, func(tx engine.Tx) error {
		if len(s.core.Holds(tx, id, 1)) == 0 {
			cause = errNotResumed
		}
		return nil
	})
	return cause, err
}

// abandon prevents a detached session from being resumed while it ends. It
// returns false if the session has already been resumed.
func (s *State) abandon(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.detached[id]; !ok {
		return false
	}
	p, ok := s.parties[id]
	if ok && p.attached > 0 {
		return false // a resume is in progress
	}
	if !ok {
		p = s.newParty(id, "")
		s.parties[id] = p
	}
	p.ending = true
	return true
}
