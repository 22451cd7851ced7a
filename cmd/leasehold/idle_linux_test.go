package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Hundreds of agents may be connected all day, and most of them do nothing. What wakes
// up to look whether something has happened then costs a core, or a laptop's battery.
func TestIdleProcessesSleep(t *testing.T) {
	t.Parallel()
	newDir(t)
	daemon := startDaemon(t)
	client, shim := startShim(t)
	client.handshake()
	client.call(2, "run_lease_acquire", `{"key":"a","keep_alive":true}`)
	client.answer(2)
	for name, c := range map[string]struct{ pid, most int }{
		"the shim":   {shim.Process.Pid, 0},
		"the daemon": {daemon.Process.Pid, 15}, // it checks its socket every two seconds
	} {
		t.Run(name, func(t *testing.T) { awaitSleep(t, c.pid, c.most) })
	}
}

// A program may run for a day under exec, which renews the lease every two seconds and
// looks for processes that it has adopted every second.
func TestExecSleepsWhileItsProgramRuns(t *testing.T) {
	t.Parallel()
	newDir(t)
	startDaemon(t)
	idler := exec.Command(leaseholdIn(t, t.TempDir()), "exec", "--lease", "b", "--", "sh", "-c", "echo ready; exec sleep 1000")
	idler.Env = append(environOf(t), "LEASEHOLD_SOCKET="+inDir(t, "s"))
	idler.Stderr = os.Stderr
	out, err := idler.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := idler.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = idler.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		_ = idler.Wait()                          // the signal's exit code
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	awaitSleep(t, idler.Process.Pid, 150)
}

// awaitSleep waits until the threads of a process have woken up most times at most in
// two seconds.
func awaitSleep(t *testing.T, pid, most int) {
	t.Helper()
	awaitTrue(t, fmt.Sprintf("the threads slept for two seconds and woke up %d times at most", most), func() bool {
		before := wakeUps(t, pid)
		time.Sleep(2 * time.Second)
		return wakeUps(t, pid)-before <= most
	})
}

// wakeUps is how often the threads of a process have waited for something.
func wakeUps(t *testing.T, pid int) (times int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("the threads of %d: %v, %v", pid, threads, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(status, []byte("\nvoluntary_ctxt_switches:"))
		n := 0
		if _, err := fmt.Sscan(string(rest), &n); err != nil {
			t.Fatalf("%s: %v", thread, err)
		}
		times += n
	}
	return times
}
