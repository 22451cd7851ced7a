package process_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
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

// What an ancestor was started with is found, whatever a process has now.
func TestAVariableIsInherited(t *testing.T) {
	cmd := exec.Command("sh", "-c", "env -i sleep 1000 & echo $!; wait")
	cmd.Env = append(os.Environ(), "OF_THE_PARENT=a value=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	if _, err := fmt.Fscan(out, &child); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(child, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	for _, pid := range []int{child, cmd.Process.Pid} {
		if value, ok := process.Inherited(pid, "OF_THE_PARENT"); !ok || value != "a value=1" {
			t.Errorf("%d has %q, %v", pid, value, ok)
		}
	}
	if value, ok := process.Inherited(child, "OF_NOBODY"); ok {
		t.Errorf("it has %q", value)
	}
}
