package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
)

// standsStill starts a program while the daemon stands still. Once ready reports that the
// program waits for the daemon, it calls meanwhile, and then lets the daemon go on.
func (d *victim) standsStill(program *exec.Cmd, ready func() bool, meanwhile func()) {
	d.t.Helper()
	daemon := d.cmd.Process
	awaitTrue(d.t, "the daemon has recorded itself", func() bool { // it listens a little before
		owner, _ := place.OwnerOf(d.socket())
		record, _ := place.ReadRecord(d.state())
		return owner.PID == daemon.Pid && record.PID == daemon.Pid
	})
	if err := daemon.Signal(syscall.SIGSTOP); err != nil {
		d.t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = program.Process.Kill() })
	awaitTrue(d.t, "the program waits for the daemon", ready)
	meanwhile()
	if err := daemon.Signal(syscall.SIGCONT); err != nil {
		d.t.Fatal(err)
	}
}

// asked reports whether SIGTERM is pending for a process that stands still.
func asked(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := strings.Cut(string(status), "ShdPnd:")
	var pending uint64
	_, _ = fmt.Sscanf(after, "%x", &pending)
	return pending&(1<<(syscall.SIGTERM-1)) != 0
}

// A restart that has stopped the daemon starts it again, whatever signal comes.
func TestAnInterruptedRestartLeavesADaemon(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			if signal.Ignored(s) {
				t.Skip("this signal is ignored here")
			}
			t.Parallel()
			v := newVictim(t)
			v.start()
			t.Cleanup(func() { _ = exec.Command(v.binary, "stop", "--socket", v.socket()).Run() })
			pid := v.cmd.Process.Pid
			restart := exec.Command(v.binary, "restart", "--socket", v.socket())
			stderr, err := restart.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(stderr)
			v.standsStill(restart, func() bool { return asked(pid) }, func() {
				if err := restart.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				if line, _ := said.ReadString('\n'); !strings.Contains(line, "started again first") {
					t.Errorf("restart said %q", line)
				}
			})
			_ = v.cmd.Wait()
			v.cmd = nil
			rest, _ := said.ReadString(0)
			if err := restart.Wait(); err != nil {
				t.Errorf("restart: %v\n%s", err, rest)
			}
			if out, err := exec.Command(v.binary, "status", "--socket", v.socket()).CombinedOutput(); err != nil {
				t.Errorf("afterwards: %v\n%s", err, out)
			}
		})
	}
}

// A backup whose terminal is closed, or that timeout ends, leaves nothing.
func TestAnInterruptedBackupLeavesNothing(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			if signal.Ignored(s) {
				t.Skip("this signal is ignored here")
			}
			t.Parallel()
			v := newVictim(t)
			v.start()
			dir := filepath.Join(v.dir, "backup")
			backup := exec.Command(v.binary, "backup", "--socket", v.socket(), dir)
			begun := func() bool {
				_, err := os.Stat(filepath.Join(dir, "db.unfinished"))
				return err == nil
			}
			v.standsStill(backup, begun, func() {
				for range 2 { // as it comes from timeout, or from the kernel and a shell
					_ = backup.Process.Signal(s) // an error means that it has ended
				}
				if err := backup.Wait(); err == nil {
					t.Error("the backup was made of a daemon that stood still")
				}
			})
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("left: %v", err)
			}
		})
	}
}
