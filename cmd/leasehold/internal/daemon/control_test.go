package daemon

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

// A daemon is stopped when its process is gone, also where nobody can look at it, as
// on a machine without /proc.
func TestStopWaitsForTheProcess(t *testing.T) {
	for name, start := range map[string]func(pid int) string{
		"seen":   func(pid int) string { return process.Find(pid).Start },
		"unseen": func(int) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "sleep", "1000")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			pid := cmd.Process.Pid
			if err := stop(t.Context(), status{Record: &place.Record{PID: pid, Start: start(pid)}}); err != nil {
				t.Fatal(err)
			}
			if name == "unseen" {
				if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
					t.Fatalf("it is said to have stopped, and runs: %v", err)
				}
			}
			var exit *exec.ExitError
			if err := <-ended; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
