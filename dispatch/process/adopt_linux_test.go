package process_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
)

// escape returns a script that starts a process without its parent, its session
// and group and its environment, and writes the pid of that process to a file.
func escape(file string) string {
	return fmt.Sprintf(`env -i setsid sh -c 'sleep 1000 & echo $! >%[1]s.new; mv %[1]s.new %[1]s'; while ! [ -e %[1]s ]; do sleep 0.01; done`, file)
}

func TestWhatLeavesEverythingIsAdoptedAndEnds(t *testing.T) {
	release, err := process.Adopt()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	mark := "TEST_MARK=" + uuid.NewString()
	file := filepath.Join(t.TempDir(), "pid")
	p, err := process.Start(process.Spec{Argv: []string{"sh", "-c", escape(file)}, Env: append(os.Environ(), mark), Mark: mark})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	escaped := pidIn(t, file)
	if found := process.Find(escaped); found.Parent != os.Getpid() {
		t.Errorf("it belongs to process %d and not to this one: %+v", found.Parent, found)
	}
	if err := p.Stop(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if process.Find(escaped).PID == 0 {
		t.Error("it ended with one process, whose it cannot be known to be")
	}
	if _, err := process.End(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	if left := process.Find(escaped); left.PID != 0 {
		t.Errorf("it is left: %+v", left)
	}
}

// A program that has the caller's input is in the caller's session. Its orphans leave no
// zombies either while it runs.
func TestOrphansInTheCallersSessionAreReaped(t *testing.T) {
	release, err := process.Adopt()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	input, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	mark := "TEST_MARK=" + uuid.NewString()
	file := filepath.Join(t.TempDir(), "pid")
	orphan := fmt.Sprintf("(sh -c 'echo $$ >%[1]s.new; mv %[1]s.new %[1]s' &); exec sleep 1000", file)
	p, err := process.Start(process.Spec{Argv: []string{"sh", "-c", orphan}, Env: append(os.Environ(), mark), Mark: mark, Input: input})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(context.WithoutCancel(t.Context()), 0)
	for err = os.ErrNotExist; err != nil; time.Sleep(time.Millisecond) {
		_, err = os.Stat(file)
	}
	stat := fmt.Sprintf("/proc/%d/stat", pidIn(t, file))
	zombie := fmt.Sprintf(") Z %d ", os.Getpid())
	for text := []byte{}; err == nil && !strings.Contains(string(text), zombie); time.Sleep(time.Millisecond) {
		text, err = os.ReadFile(stat)
	}
	release() // looks once more
	if _, err := os.Stat(stat); err == nil {
		t.Error("its zombie is left")
	}
}

func TestAdoptedProcessEndsWithAKilledDispatcher(t *testing.T) {
	mark := "TEST_MARK=" + uuid.NewString()
	file := filepath.Join(t.TempDir(), "pid")
	dispatcher := exec.Command(os.Args[0], "adopter", mark, file)
	dispatcher.Stderr = os.Stderr
	out, err := dispatcher.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dispatcher.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	escaped := process.Find(pidIn(t, file))
	if escaped.PID == 0 {
		t.Fatal("it did not escape")
	}
	dispatcher.Process.Kill()
	dispatcher.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for escaped.Alive() {
		if ctx.Err() != nil {
			t.Fatal("it outlives its dispatcher")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A process whose first thread has ended is alive while another one runs.
func TestProcessLivesWithoutItsFirstThread(t *testing.T) {
	cmd := exec.Command(os.Args[0], "headless")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(stat), ") Z ") {
		t.Fatalf("its first thread has not ended: %s %v", stat, err)
	}
	if found := process.Find(cmd.Process.Pid); found.PID == 0 || !found.Alive() {
		t.Errorf("counts as dead: %+v", found)
	}
}

// The look for adopted processes is made up to twenty times a second. It must not grow
// with the agents: at first it read a file for each, and with a hundred agents that did
// nothing the dispatcher took a fifth of a core.
func TestTheLookForAdoptedProcessesDoesNotGrowWithTheAgents(t *testing.T) {
	cost := func() float64 { return testing.AllocsPerRun(10, func() { process.SeeToAdopted() }) }
	before := cost()
	mark := "TEST_MARK=" + uuid.NewString()
	for range 50 {
		p, err := process.Start(process.Spec{Argv: []string{"sleep", "1000"}, Env: append(os.Environ(), mark), Mark: mark})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = p.Stop(context.Background(), 0) }()
	}
	if after := cost(); after > before+50 {
		t.Errorf("%v allocations with 50 agents, %v without", after, before)
	}
}
