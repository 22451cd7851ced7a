package dispatch

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
)

// A launchedProcess is the process of a running work.
type launchedProcess struct {
	Peer
	actor uuid.UUID
}

// kin is what a connection's process has to do with those that are launched.
type kin struct {
	process Peer
	actor   uuid.UUID // whose process it is or comes from; zero: nobody's
	run     string    // whose launcher it comes from, if it is nobody's; "": no one's
}

// maxAncestors bounds the way up, in case it is read while it changes.
const maxAncestors = 256

// kinOf finds out where the process of a connection comes from: up from parent
// to parent, and by the group and the session of each, which outlive the
// process that made them. So it finds a child whose parents are gone as long
// as it has not left both, and one that has left as long as its parents are
// there. A process that does both at once, on purpose, is nobody's; nor is one
// that comes over HTTP, or from where this machine's pids mean nothing.
//
// Of a launcher only the children are found: what it shares a session with is
// the user's.
func (s *State) kinOf(peer Peer) kin {
	k := kin{process: peer}
	if peer.PID == 0 {
		return k
	}
	s.mu.Lock()
	idle := len(s.processes) == 0 && len(s.launchers) == 0
	s.mu.Unlock()
	if idle {
		return k
	}
	for pid, n := peer.PID, 0; pid > 0 && n < maxAncestors; n++ {
		p := s.opts.Process(pid)
		if p.PID == 0 {
			return k
		}
		if actor, ok := s.processOf(p); ok {
			return kin{process: peer, actor: actor}
		}
		if k.run == "" && n > 0 {
			k.run = s.launchedBy(p.Peer)
		}
		pid = p.Parent
	}
	return k
}

// processOf is the actor of whose process p is, or whose process made p's group
// or session.
func (s *State) processOf(p Process) (actor uuid.UUID, ok bool) {
	for _, pid := range []int{p.PID, p.Group, p.Session} {
		s.mu.Lock()
		known, ok := s.processes[pid]
		s.mu.Unlock()
		if !ok {
			continue
		}
		// While a group or a session has its number no other process gets
		// it; so who has the pid now made it, or is gone.
		if now := s.opts.Process(pid); now.PID == 0 && pid != p.PID || now.PID != 0 && now.Start == known.Start {
			return known.actor, true
		}
	}
	return uuid.Nil, false
}

// launchedBy is the run whose launcher p is.
func (s *State) launchedBy(p Peer) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.launchers {
		if l.peer.PID == p.PID && l.peer.Start == p.Start {
			return l.name
		}
	}
	return ""
}

// assign holds what a connection says it is against where its process comes
// from. It returns the actor that it is in any case, or the zero one.
func (s *State) assign(tx engine.Tx, c Credentials, k kin) (Actor, error) {
	switch {
	case k.actor != uuid.Nil:
		a, ok := getActor(tx, k.actor)
		if !ok || a.Ended() {
			return Actor{}, forbidden("process %d comes from an actor that has ended", k.process.PID)
		}
		if c.Operator {
			return Actor{}, forbidden("process %d is one of actor %s of run %q, whatever it says: it does what that actor may do, by leasehold mcp or leasehold call, and no operator's commands", k.process.PID, a.Path, a.Run)
		}
		return a, nil
	case k.run != "" && c.Operator:
		return Actor{}, forbidden("process %d was started by the dispatcher of run %q and is no operator's", k.process.PID, k.run)
	case k.run != "" && c.Token == "" && c.Handle == "":
		return Actor{}, forbidden("process %d was started by the dispatcher of run %q and joins no run: connect with the LEASEHOLD_TOKEN it was given", k.process.PID, k.run)
	}
	return Actor{}, nil
}

// mayBe refuses an actor that the process of a connection is not.
func (k kin) mayBe(a Actor) error {
	switch {
	case k.actor != uuid.Nil && a.ID != k.actor:
		return forbidden("process %d is one of another actor than %s, whose credentials it shows", k.process.PID, a.Path)
	case k.actor == uuid.Nil && k.run != "" && a.Run != k.run:
		return forbidden("process %d was started by the dispatcher of run %q and shows credentials of run %q", k.process.PID, k.run, a.Run)
	}
	return nil
}
