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
