package work

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A launchedProcess is the process of a running work.
type launchedProcess struct {
	process.Peer
	actor uuid.UUID
}

// A Kin is what a connection's process has to do with those that are launched.
type Kin struct {
	Process process.Peer
	Actor   uuid.UUID // whose process it is or comes from; zero: nobody's
	Run     string    // whose launcher it comes from, if it is nobody's; "": no one's
}

// maxAncestors bounds the way up, in case it is read while it changes.
const maxAncestors = 256

// Kin finds out where the process of a connection comes from: up from parent
// to parent, and by the group and the session of each, which outlive the
// process that made them. So it finds a child whose parents are gone as long
// as it has not left both, and one that has left as long as its parents are
// there. A process that does both at once, on purpose, is nobody's; nor is one
// that is not known, or that comes from where this machine's pids mean nothing.
//
// Of a launcher only the children are found: what it shares a session with is
// the user's.
func (ls *Launchers) Kin(peer process.Peer) Kin {
	k := Kin{Process: peer}
	if peer.PID == 0 || peer.Elsewhere() {
		return k
	}
	ls.mu.Lock()
	idle := len(ls.processes) == 0 && len(ls.byRun) == 0
	ls.mu.Unlock()
	if idle {
		return k
	}
	for pid, n := peer.PID, 0; pid > 0 && n < maxAncestors; n++ {
		p := ls.opts.Find(pid)
		if p.PID == 0 {
			return k
		}
		if actor, ok := ls.processOf(p); ok {
			return Kin{Process: peer, Actor: actor}
		}
		if k.Run == "" && n > 0 {
			k.Run = ls.launchedBy(p.Peer)
		}
		pid = p.Parent
	}
	return k
}

// processOf is the actor of whose process p is, or whose process made p's group
// or session.
func (ls *Launchers) processOf(p process.Running) (actor uuid.UUID, ok bool) {
	for _, pid := range []int{p.PID, p.Group, p.Session} {
		ls.mu.Lock()
		known, ok := ls.processes[pid]
		ls.mu.Unlock()
		if !ok {
			continue
		}
		// While a group or a session has its number no other process gets
		// it; so who has the pid now made it, or is gone.
		if now := ls.opts.Find(pid); now.PID == 0 && pid != p.PID || now.PID != 0 && now.Start == known.Start {
			return known.actor, true
		}
	}
	return uuid.Nil, false
}

// launchedBy is the run whose launcher p is.
func (ls *Launchers) launchedBy(p process.Peer) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byRun {
		if l.Peer.PID == p.PID && l.Peer.Start == p.Start {
			return l.Name
		}
	}
	return ""
}
