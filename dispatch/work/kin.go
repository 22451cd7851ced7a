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

// A Kin is the relation of a connecting process to the launched processes.
type Kin struct {
	Process process.Peer
	Actor   uuid.UUID // the actor that the process belongs to or descends from; zero: none
	Run     string    // if Actor is zero: the run whose launcher the process descends from; "": none
	Lost    bool      // if Actor is zero: the process has ended, or has too many ancestors, so nobody knows
}

// Known reports whether the process has any.
func (k Kin) Known() bool { return k.Actor != uuid.Nil || k.Run != "" }

// maxAncestors limits the walk up the ancestors, which begins again if one of them ends
// meanwhile.
const maxAncestors = 256

// Kin determines which launched process a connecting process descends from. It
// walks up from parent to parent and checks the process group and the session
// of each, which outlive the process that created them. It therefore finds a
// process whose parents are gone as long as the process has not left both the
// group and the session, and one that has left them as long as its parents
// live. A process that evades both on purpose has no kin. Neither has a process
// whose pid is unknown or does not belong to this machine.
//
// The process that connected may have ended and have left its connection to another one,
// whose ancestors nobody can tell. Then the process counts as lost. An ancestor that is
// hidden from this user, as a root's may be, is no launched process.
//
// For a launcher only descendants count. Other processes in the same session
// are the user's.
func (ls *Launchers) Kin(peer process.Peer) Kin {
	k := Kin{Process: peer}
	if peer.PID == 0 || peer.Elsewhere() {
		return k
	}
	ls.mu.Lock()
	idle := len(ls.processes) == 0 && len(ls.byRun) == 0 && len(ls.machines) == 0
	ls.mu.Unlock()
	if idle {
		return k
	}
	for pid, below, n := peer.PID, 0, 0; pid > 0; n++ {
		p := ls.opts.Find(pid)
		switch {
		case n == maxAncestors, pid == peer.PID && (p.PID == 0 || p.Start != peer.Start):
			k.Lost = true
			return k
		case p.PID == 0 && ls.opts.Find(below).Parent == pid: // hidden: a process that ends loses its children first
			return k
		case p.PID == 0:
			pid = peer.PID
			continue
		}
		if actor, ok := ls.processOf(p); ok {
			return Kin{Process: peer, Actor: actor}
		}
		if k.Run == "" && pid != peer.PID {
			k.Run = ls.launchedBy(p.Peer)
		}
		pid, below = p.Parent, pid
	}
	return k
}

// processOf returns the actor of a launched process if that process is p, or
// created p's group or session.
func (ls *Launchers) processOf(p process.Running) (actor uuid.UUID, ok bool) {
	for _, pid := range []int{p.PID, p.Group, p.Session} {
		ls.mu.Lock()
		known, ok := ls.processes[pid]
		ls.mu.Unlock()
		if !ok {
			continue
		}
		// No process gets the number of a group or a session that still exists.
		// So the process that has this pid now is the one that created it, or
		// there is no such process.
		if now := ls.opts.Find(pid); now.PID == 0 && pid != p.PID || now.PID != 0 && now.Start == known.Start {
			return known.actor, true
		}
	}
	return uuid.Nil, false
}

// launchedBy returns the run whose launcher is p, or "".
func (ls *Launchers) launchedBy(p process.Peer) string {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.allLocked {
		if l.Peer.PID == p.PID && l.Peer.Start == p.Start {
			return l.Name
		}
	}
	return ""
}
