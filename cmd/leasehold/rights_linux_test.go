package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file of the state that is another user's, as after a daemon that was started with
// sudo, is named, and no daemon is said to have the state open.
func TestAFileOfTheStateIsAnotherUsers(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lh") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := leaseholdIn(t, dir)
	call := func(as *syscall.SysProcAttr, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir+"/s", "XDG_RUNTIME_DIR="+dir+"/r")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"actor", "add", "--run", "r", "--name", "lead", "--role", "root"}, {"stop"}} {
		if out, err := call(nil, args...); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	lock := filepath.Join(dir, "s", "leasehold", "db", "LOCK")
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // root may read and write everything
		const nobody = 65534
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil && path != lock && path != binary {
				err = os.Chown(path, nobody, nobody)
			}
			return err
		})
	}
	if err := errors.Join(err, os.Chmod(lock, 0)); err != nil {
		t.Fatal(err)
	}
	if out, err := call(as, "version"); err != nil {
		t.Skipf("another user cannot run %s: %v %s", binary, err, out)
	}
	if out, err := call(as, "serve"); err == nil || !strings.Contains(out, "LOCK: permission denied") || strings.Contains(out, "in use") || !strings.Contains(out, "hint: it is write-protected, or another user's") {
		t.Errorf("serve: %v: %s", err, out)
	}
	if out, err := call(as, "doctor"); err == nil || !strings.Contains(out, lock+" cannot be read and written: permission denied") || !strings.Contains(out, "do: sudo chown -R ") {
		t.Errorf("doctor: %v: %s", err, out)
	}
}

// The doctor names the directory that keeps a user from his state, which may be far above
// it, and one in which no socket can be made.
func TestTheDirectoryThatIsClosedIsNamed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		t.Fatal(err)
	}
	closed, binary := filepath.Join(dir, "closed"), leaseholdIn(t, dir)
	if err := os.Mkdir(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(os.Chmod(closed, 0o700), os.RemoveAll(dir)) })
	as := new(syscall.SysProcAttr)
	if os.Getuid() == 0 { // root may use every directory
		const nobody = 65534
		as.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chown(closed, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string, env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, command)
		cmd.Dir, cmd.SysProcAttr = dir, as
		cmd.Env = append([]string{"HOME=" + dir}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	doctor := func(env ...string) string {
		out, _ := run("doctor", env...) // it has found a fault
		return out
	}
	if out, err := run("version"); err != nil {
		t.Skipf("another user cannot run %s: %v %s", binary, err, out)
	}
	if out := doctor("XDG_STATE_HOME=" + closed + "/state"); !strings.Contains(out, "fault  state    "+closed+" cannot be written") {
		t.Errorf("the state: %s", out)
	}
	if err := os.Chmod(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if out := doctor("XDG_RUNTIME_DIR=" + closed + "/run"); !strings.Contains(out, "and none can: "+closed+" cannot be written") {
		t.Errorf("the socket: %s", out)
	}
}
