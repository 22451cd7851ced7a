package process_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/dispatch/process"
)

// The watchdog inherits standard error, which tells the test when it ends.
func TestNothingIsLeftOfADispatcherThatWasKilled(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	ends, alive, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	cmd := exec.Command(os.Args[0], "dispatcher", tr.mark, "parent", "session idle", "leave session,stubborn", "stubborn")
	cmd.Stdout, cmd.Stderr = tr.in, alive
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tr.await(5)
	cmd.Process.Kill()
	cmd.Wait()
	alive.Close()
	said := make([]byte, 1000)
	if n, _ := ends.Read(said); n > 0 {
		t.Errorf("the watchdog said %q", said[:n])
	}
	tr.gone()
	survives()
}

func TestWatchdogThatIsToldThatAllIsDoneEndsNothing(t *testing.T) {
	tr := newTree(t)
	p := tr.start("idle")
	tr.await(1)
	w, err := process.StartWatchdog(os.Args[0], tr.mark, long)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	<-w.Done()
	if !running(p.PID()) {
		t.Error("the process was ended")
	}
	stop(t, p, long)
	tr.gone()
}

func TestWatchdogThatWasKilledIsMissed(t *testing.T) {
	tr := newTree(t)
	w, err := process.StartWatchdog(os.Args[0], tr.mark, long)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(w.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-w.Done()
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "did not stay") {
		t.Errorf("error: %v", err)
	}
}

func TestWatchdogThatDoesNotWatchIsAnError(t *testing.T) {
	program := filepath.Join(t.TempDir(), "leasehold")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 'unknown command' >&2\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := process.StartWatchdog(program, "A=b", long); err == nil || !strings.Contains(err.Error(), "not that it is ready") {
		t.Errorf("error: %v", err)
	}
	if _, err := process.StartWatchdog(filepath.Join(t.TempDir(), "none"), "A=b", long); err == nil {
		t.Error("no error")
	}
	if _, err := process.StartWatchdog(os.Args[0], "A=", long); err == nil {
		t.Error("no error")
	}
}

// Signals that end the processes of a terminal do not end the watchdog.
func TestWatchdogIsDeafToPoliteSignals(t *testing.T) {
	tr := newTree(t)
	w, err := process.StartWatchdog(os.Args[0], tr.mark, long)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGQUIT} {
		if err := syscall.Kill(w.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// A watched process needs no mark until it is stopped.
func TestWatchedProcessIsEndedWithoutItsMark(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	cmd := exec.Command(os.Args[0], "dispatcher", tr.mark, "env", "-i", os.Args[0], "parent", "session idle")
	cmd.Stdout, cmd.Stderr = tr.in, os.Stderr
	held, holds, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	cmd.ExtraFiles = []*os.File{holds} // the dispatcher makes the watchdog keep it open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	holds.Close()
	tr.await(3)
	cmd.Process.Kill()
	cmd.Wait()
	if n, err := held.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read: %d %v", n, err)
	}
	// The watchdog has ended, and the file that it kept open is closed.
	tr.gone()
	survives()
}

// A starter that is stopped cannot end its processes, but it has not ended either.
func TestWatchdogEndsTheProcessesOfAStarterThatSaysNothing(t *testing.T) {
	survives := bystander(t)
	tr := newTree(t)
	p := tr.start("idle")
	tr.await(1)
	w, err := process.StartWatchdog(os.Args[0], tr.mark, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Within(long)
	w.Within(1)
	<-w.Done()
	<-p.Done()
	tr.gone()
	survives()
	_ = w.Close() // it has ended
	stop(t, p, long)
}
