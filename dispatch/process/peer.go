package process

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"
)

// A Peer is the process at the other end of a connection. The zero Peer is
// unknown, such as one that connects over HTTP from another machine.
type Peer struct {
	PID   int    `json:",omitempty"`
	Start string `json:",omitempty"` // start time, to tell it from a later process with the same pid
	// Transport is "unix", "http", or "remote". A remote connection goes over
	// HTTP but lasts as long as its process, as a connection to the socket
	// does.
	Transport string `json:",omitempty"`
	// Machine is where it runs: see [Machine], or [Container] if that is on this machine.
	Machine string `json:",omitempty"`
	// Away is its pid there, if that was not this machine when it connected.
	Away int `json:",omitempty"`
}

// Unseen reports whether the connection came over a network, so that the kernel does not say
// which process is at its other end.
func (p Peer) Unseen() bool { return p.Transport == "http" || p.Transport == "remote" }

// Elsewhere reports whether the process runs where this one cannot see it.
func (p Peer) Elsewhere() bool {
	return p.Machine != "" && p.Machine != Machine() && p.Machine != Container()
}

// Here returns how this machine sees a process: without a pid if it runs elsewhere.
func (p Peer) Here() Peer {
	if p.Elsewhere() {
		p.PID = 0
	} else if p.PID == 0 && p.Machine != "" {
		p.PID = p.Away
	}
	return p
}

// Same reports whether two peers are certainly one process, each as seen on any
// machine.
func (p Peer) Same(q Peer) bool {
	pid := cmp.Or(p.PID, p.Away)
	return pid != 0 && pid == cmp.Or(q.PID, q.Away) && p.Start == q.Start && p.Machine == q.Machine
}

// A Running is a running process with its parent, group and session.
type Running struct {
	Peer
	Parent  int
	Group   int // pid of the leader of its process group
	Session int // pid of the leader of its session
}

// Find describes a running process of this machine. It returns the zero Running
// if there is no process with that pid.
func Find(pid int) Running {
	if pid <= 0 {
		return Running{}
	}
	e, ok := readEntry(pid)
	if !ok {
		return Running{}
	}
	return Running{
		Peer:   Peer{PID: pid, Start: startText(e.start)},
		Parent: e.parent, Group: e.group, Session: e.session,
	}
}

// Alive reports whether the process still runs. It returns true for a process
// on another machine and for one that is [Hidden], and false for an unknown one.
func (p Peer) Alive() bool {
	if p.Elsewhere() {
		return true
	}
	now := Find(p.PID)
	return now.PID != 0 && now.Start == p.Start || now.PID == 0 && Hidden(p.PID)
}

// Hidden reports whether a process of this user has that pid and cannot be
// described, because /proc is not there, or because too many files are open. So
// it cannot be taken for one that has ended.
func Hidden(pid int) bool {
	return pid > 0 && !readable(pid) && unix.Kill(pid, 0) == nil
}

// Name returns the system's name for the program of a process, which the system
// may shorten (Linux keeps 15 bytes). It returns "" if there is no such
// process.
func Name(pid int) string { return nameOf(pid) }

// Init reports whether a process is an init, which becomes the parent of orphaned
// processes. Its name says that, and not its pid: in a container a client may be process 1.
func Init(pid int) bool {
	return slices.Contains([]string{"init", "systemd", "launchd", "runit", "s6-svscan", "tini", "dumb-init", "docker-init", "catatonit", "conmon"}, Name(pid))
}
