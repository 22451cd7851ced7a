package dispatch

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/engine"
)

// httpIdle is how long a client over HTTP may be silent, after a restart as
// before: no connection tells whether it is there. The answer to initialize
// says so.
const httpIdle = 15 * time.Minute

// A detached session was connected before a restart and has not been resumed.
type detached struct {
	peer   process.Peer
	missed time.Duration // while this machine was awake
}

// errProcessGone is why a session ends that a restart found without its
// process.
var errProcessGone = errors.New("its process had gone when the daemon restarted")

// errNotResumed is why a session ends whose process never connected again.
var errNotResumed = errors.New("it was not resumed after the daemon restarted")

// recoverSessions ends the sessions whose process is gone, and keeps the
// others for it to come back.
func (s *State) recoverSessions(ctx context.Context) error {
	var guests []sessionRecord
	err := rows.View(ctx, s.eng, func(tx engine.Tx) error {
		for row := range tx.Scan(SessionPrefix) {
			record, ok := rows.Decode[sessionRecord](tx, row)
			if !ok || s.launchers.KeptOpen(record.ID) {
				continue // its launcher, or the sweep, says when it ends
			}
			if record.Guest && s.opts.Alive(record.Peer) {
				guests = append(guests, record)
				continue
			}
			if record.Peer.Elsewhere() {
				record.Peer.PID = 0
			}
			s.detached[record.ID] = detached{peer: record.Peer}
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

// detachedPoll is how often the processes of detached sessions are looked at.
// Nothing tells when a process that is not our child ends.
const detachedPoll = time.Second

// tendDetached ends detached sessions whose process goes, and those that hold
// nothing after a grace. It returns nil once none is left: only a restart
// makes them.
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
		case <-tick.C: // which stands still while the machine sleeps
			s.missDetached(detachedPoll)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missDetached counts how long the detached sessions have been missed.
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

// detachedEnd says why a detached session is to end now, if it is.
func (s *State) detachedEnd(ctx context.Context, id uuid.UUID, d detached) (cause, err error) {
	if d.peer.PID != 0 && !s.opts.Alive(d.peer) {
		return errProcessGone, nil
	}
	err = rows.View(ctx, s.eng, func(tx engine.Tx) error {
		limit := s.opts.DetachedGrace
		if d.peer.Transport == "http" {
			limit = max(limit, httpIdle)
		}
		if d.missed < limit {
			return nil
		}
		if len(s.core.Holds(tx, id, 1)) == 0 {
			cause = errNotResumed
		}
		return nil
	})
	return cause, err
}

// abandon makes sure that a detached session is not resumed while it ends. It
// reports false if it has been resumed.
func (s *State) abandon(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.detached[id]; !ok {
		return false
	}
	p, ok := s.parties[id]
	if ok && p.attached > 0 {
		return false // a resume is under way
	}
	if !ok {
		p = s.newParty(id, "")
		s.parties[id] = p
	}
	p.ending = true
	return true
}
