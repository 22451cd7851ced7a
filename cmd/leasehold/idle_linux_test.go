package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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
		t.Run(name, func(t *testing.T) {
			awaitTrue(t, fmt.Sprintf("a thread slept for two seconds and woke up %d times at most", c.most), func() bool {
				before := wakeUps(t, c.pid)
				time.Sleep(2 * time.Second)
				return wakeUps(t, c.pid)-before <= c.most
			})
		})
	}
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
