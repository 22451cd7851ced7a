package dispatch

// A Peer is the process at the other end of a connection. The zero Peer is
// one that is not known, as over HTTP.
type Peer struct {
	PID   int    `json:",omitempty"`
	Start string `json:",omitempty"` // when it started, so that a reused pid is another process
	// Transport is how it came: "unix" or "http".
	Transport string `json:",omitempty"`
}

// A Process is a running process and where it belongs.
type Process struct {
	Peer
	Parent  int
	Group   int // the pid of the process that made its group
	Session int // and of the one that made its session
}

// ProcessOf describes a running process of this machine; the zero Process if
// there is none with that pid.
func ProcessOf(pid int) Process {
	p, ok := look(pid)
	if !ok || pid == 0 {
		return Process{}
	}
	return p
}

// Alive reports whether the process still runs. A peer without a process never
// does.
func (p Peer) Alive() bool {
	now := ProcessOf(p.PID)
	return now.PID != 0 && now.Start == p.Start
}
