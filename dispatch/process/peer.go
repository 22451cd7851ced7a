package process

// A Peer is the process at the other end of a connection. The zero Peer is
// unknown, as one that comes over HTTP from another machine is.
type Peer struct {
	PID   int    `json:",omitempty"`
	Start string `json:",omitempty"` // when it started, so that a reused pid is another process
	// Transport is how it came: "unix", "http", or "remote" for a connection over HTTP
	// that lasts as one to the socket does.
	Transport string `json:",omitempty"`
	// Machine is where it runs, if that may be another one than this: see [Machine].
	Machine string `json:",omitempty"`
}

// Elsewhere reports whether the process runs where this one cannot see it.
func (p Peer) Elsewhere() bool { return p.Machine != "" && p.Machine != Machine() }

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

// Alive reports whether the process still runs, or may run elsewhere. An unknown peer
// never does.
func (p Peer) Alive() bool {
	if p.Elsewhere() {
		return true
	}
	now := Find(p.PID)
	return now.PID != 0 && now.Start == p.Start
}

// Name is what the system calls the program of a process, cut off where the system
// does that (Linux keeps 15 bytes); "" if there is no such process.
func Name(pid int) string { return nameOf(pid) }
