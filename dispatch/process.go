package dispatch

// A Peer is the process at the other end of a connection. The zero Peer is
// one that is not known, as over HTTP.
type Peer struct {
	PID   int    `json:",omitempty"`
	Start string `json:",omitempty"` // when it started, so that a reused pid is another process
	// Transport is how it came: "unix" or "http".
	Transport string `json:",omitempty"`
}

// ProcessOf describes a running process of this machine; the zero Peer if
// there is none with that pid.
func ProcessOf(pid int) Peer {
	start, ok := processStart(pid)
	if !ok {
		return Peer{}
	}
	return Peer{PID: pid, Start: start}
}

// Alive reports whether the process still runs. A peer without a process never
// does.
func (p Peer) Alive() bool {
	if p.PID == 0 {
		return false
	}
	start, ok := processStart(p.PID)
	return ok && start == p.Start
}
