package process

// A Peer is the process at the other end of a connection. The zero Peer is
// unknown, as one that comes over HTTP from another machine is.
type Peer struct {
	PID   int    `json:",omitempty"`
	Start string `json:",omitempty"` // when it started, so that a reused pid is another process
	// Transport is how it came: "unix" or "http".
	Transport string `json:",omitempty"`
}

// A Running is a process that runs, and where it belongs.
type Running struct {
	Peer
	Parent  int
	Group   int // the pid of the process that made its group
	Session int // and of the one that made its session
}

// Find describes a running process of this machine; the zero Running if there
// is none with that pid.
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

// Alive reports whether the process still runs. An unknown peer never does.
func (p Peer) Alive() bool {
	now := Find(p.PID)
	return now.PID != 0 && now.Start == p.Start
}
