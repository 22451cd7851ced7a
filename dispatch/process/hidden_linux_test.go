package process_test

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/dispatch/process"
)

// A process that cannot be looked at counts as alive: what it holds would be given to
// another. The test runs in a process of its own, which has no file left to open.
func TestAProcessThatCannotBeSeenIsAlive(t *testing.T) {
	if os.Getenv("WITHOUT_FILES") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "WITHOUT_FILES=yes")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	ended := exec.Command("true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	me, other := process.Find(os.Getpid()).Peer, process.Find(ended.Process.Pid).Peer
	if err := ended.Wait(); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if process.Find(me.PID).PID != 0 || !process.Hidden(me.PID) {
		t.Error("this process can still be looked at")
	}
	if !me.Alive() {
		t.Error("a process that cannot be seen has ended")
	}
	if other.Alive() {
		t.Error("a process that has ended is alive")
	}
}
