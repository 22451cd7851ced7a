package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Who is in a container and reaches a daemon outside of it, which has no pid there, cannot
// stop or restart it, and is told so. The pid 0 would be every process of his group.
func TestADaemonOutsideOfTheContainerGetsNoSignal(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	binary := leaseholdIn(t, dir)
	call := func(as *syscall.SysProcAttr, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	inside := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Setpgid:     true, // a signal to its group would not reach this test
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1, ContainerID: os.Getuid()}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1, ContainerID: os.Getgid()}},
		}
	}
	if out, err := call(inside(), "version"); err != nil {
		t.Skipf("no namespaces can be made here: %v %s", err, out)
	}
	if out, err := call(nil, "actor", "add", "--run", "r", "--name", "lead", "--role", "root"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		cmd := exec.Command(binary, "stop")
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "stopped the daemon") {
			t.Errorf("stop, outside: %v: %s", err, out)
		}
	})
	for _, args := range []string{"stop", "restart"} {
		if out, err := call(inside(), args); err == nil || !strings.Contains(out, "the daemon has no pid here: it runs outside of this container") ||
			!strings.Contains(out, "hint: run this command where the daemon was started") {
			t.Errorf("%s: %v: %s", args, err, out)
		}
	}
	if out, err := call(inside(), "status"); err != nil || !strings.Contains(out, "a daemon runs (outside of this container or pid namespace)") {
		t.Errorf("status: %v: %s", err, out)
	}
}
