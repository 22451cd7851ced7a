package dispatch

import (
	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
)

// assign compares the credentials of a connection with the ancestry of its
// process. If the process belongs to a launched actor, it returns that actor;
// otherwise it returns the zero Actor.
func assign(tx engine.Tx, c Credentials, k work.Kin) (Actor, error) {
	switch {
	case k.Actor != uuid.Nil:
		a, ok := getActor(tx, k.Actor)
		if !ok || a.Ended() {
			return Actor{}, forbidden("process %d comes from an actor that has ended", k.Process.PID)
		}
		if c.Operator {
			return Actor{}, forbidden("process %d is one of actor %s of run %q, whatever it says: it does what that actor may do, by leasehold mcp or leasehold call, and no operator's commands", k.Process.PID, a.Path, a.Run)
		}
		return a, nil
	case k.Lost:
		return Actor{}, lost(k)
	case k.Run != "" && c.Operator:
		return Actor{}, forbidden("process %d was started by the dispatcher of run %q and is no operator's", k.Process.PID, k.Run)
	case k.Run != "" && c.Token == "" && c.Handle == "":
		return Actor{}, forbidden("process %d was started by the dispatcher of run %q and joins no run: connect with the LEASEHOLD_TOKEN it was given", k.Process.PID, k.Run)
	}
	return Actor{}, nil
}

// lost returns the error for a connection that may be any agent's.
func lost(k work.Kin) error {
	return forbidden("process %d opened this connection and has ended, or has too many ancestors, so nobody knows whether it is an agent's; connect again from a process that stays", k.Process.PID)
}

// notOutside refuses a launched process that connects as an operator or a
// reader.
func notOutside(k work.Kin) error {
	switch {
	case k.Lost:
		return lost(k)
	case !k.Known():
		return nil
	}
	return forbidden("process %d was started by a dispatcher, and is no operator's", k.Process.PID)
}

// mayBe refuses credentials of an actor that the connecting process does not
// belong to. The process behind an HTTP connection is unknown, so a launched
// actor cannot connect over HTTP.
func mayBe(tx engine.Tx, k work.Kin, a Actor) error {
	w, launched := work.Get(tx, a.ID)
	away := w.Remote && k.Process.Transport == "remote" // where it was launched, nobody here sees
	switch {
	case k.Lost:
		return lost(k)
	case launched && !away && k.Process.Unseen():
		return forbidden("actor %s of run %q was launched: its token and its sessions are for its own processes, which connect by leasehold mcp or leasehold call, and not over HTTP", a.Path, a.Run)
	case k.Actor != uuid.Nil && a.ID != k.Actor:
		return forbidden("process %d is one of another actor than %s, whose credentials it shows", k.Process.PID, a.Path)
	case k.Actor == uuid.Nil && k.Run != "" && a.Run != k.Run:
		return forbidden("process %d was started by the dispatcher of run %q and shows credentials of run %q", k.Process.PID, k.Run, a.Run)
	}
	return nil
}

// Knows reports whether a process descends from one that a launcher of this
// state has started. That descent decides who the process is, whatever it claims.
func (s *State) Knows(peer process.Peer) bool { return s.launchers.Kin(peer).Known() }
