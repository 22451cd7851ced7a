package process_test

import (
	"testing"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A process is the same, whichever machine has noted it.
func TestAPeerIsTheSameSeenFromAnywhere(t *testing.T) {
	machine := process.Machine()
	here := process.Peer{PID: 7, Start: "then", Transport: "unix", Machine: machine}
	noted := process.Peer{Away: 7, Start: "then", Transport: "unix", Machine: machine} // by a server elsewhere
	far := process.Peer{PID: 7, Start: "then", Transport: "unix", Machine: "another"}
	for _, one := range []struct {
		a, b process.Peer
		same bool
	}{
		{here, here, true},
		{here, noted, true},
		{noted, here, true},
		{here, far, false},
		{here, process.Peer{PID: 8, Start: "then", Machine: machine}, false},
		{here, process.Peer{PID: 7, Start: "later", Machine: machine}, false},
		{process.Peer{Machine: machine, Start: "then"}, process.Peer{Machine: machine, Start: "then"}, false},
	} {
		if one.a.Same(one.b) != one.same {
			t.Errorf("%+v is the same as %+v: %v", one.a, one.b, !one.same)
		}
	}
	if p := far.Here(); p.PID != 0 {
		t.Errorf("a process elsewhere has pid %d here", p.PID)
	}
	if here.Here().PID != 7 || noted.Here().PID != 7 {
		t.Error("a process of this machine has no pid here")
	}
}
