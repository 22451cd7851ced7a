package exit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// An error of the file system says what to do, whichever command met it, unless the
// command knows better.
func TestAnErrorOfTheFileSystemHasAHint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/nowhere/else", link); err != nil {
		t.Fatal(err)
	}
	nowhere := link + " is a link to /nowhere/else, which does not exist: mount or make it, or remove the link"
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	const looped = "a link in that path leads back to itself: remove it, or name another place"
	t.Chdir(dir)
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	_, noTemp := os.MkdirTemp("", "")
	at := func(cause error) error { return &fs.PathError{Op: "open", Path: file, Err: cause} }
	bind := func(cause error) error {
		return &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: file, Net: "unix"}, Err: os.NewSyscallError("bind", cause)}
	}
	for _, c := range []struct {
		err  error
		hint string
	}{
		{os.Mkdir(filepath.Join(dir, "none", "backup"), 0o700), "there is no directory " + filepath.Join(dir, "none") + ": make it, or correct the path"},
		{os.Mkdir(filepath.Join(file, "backup"), 0o700), "a part of that path is a file: name a place in a directory"},
		{os.MkdirAll(link, 0o700), nowhere},
		{os.Mkdir(filepath.Join(link, "db"), 0o700), nowhere},
		{os.MkdirAll(loop, 0o700), looped},
		{os.Mkdir(filepath.Join(loop, "db"), 0o700), looped},
		{os.NewSyscallError("getwd", syscall.ENOENT), "the directory that you are in has been removed, or cannot be read: change to another"},
		{noTemp, "TMPDIR names that directory: make it, or name another"},
		{&fs.PathError{Op: "fork/exec", Path: file, Err: syscall.EAGAIN}, "this user may have no more processes: end some, or raise the limit, which is ulimit -u, or TasksMax in a unit of systemd"},
		{at(syscall.ENOSPC), "make room in " + dir + ", or name a place on another disk"},
		{&fs.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC}, "make room in " + dir + ", or name a place on another disk"},
		{at(syscall.EDQUOT), "make room in " + dir + ", or name a place on another disk"},
		{&os.LinkError{Op: "rename", Old: file, New: file, Err: syscall.ENOSPC}, "make room in " + dir + ", or name a place on another disk"},
		{at(syscall.EIO), "the disk that has " + dir + " fails: the log of the system, as dmesg shows it, says more; repair the disk, or name a place on another"},
		{at(syscall.EFBIG), "no file may become that large here: raise the limit, which is ulimit -f, or LimitFSIZE in a unit of systemd"},
		{at(syscall.EMFILE), "this process may have no more files open: raise the limit, which is ulimit -n, or LimitNOFILE in a unit of systemd"},
		{fmt.Errorf("lock %s: %w", file, syscall.ENOLCK), "no file can be locked there, as on NFS without its lock service: name a place on a disk of this machine with XDG_STATE_HOME and XDG_RUNTIME_DIR, or start that service"},
		{os.NewSyscallError("accept4", syscall.ENOSYS), "the kernel, or the rules of this container (seccomp), lack that system call: allow it, or run leasehold elsewhere"},
		{&net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("socket", syscall.EMFILE)}, "this process may have no more files open: raise the limit, which is ulimit -n, or LimitNOFILE in a unit of systemd"},
		{&fs.PathError{Op: "readlink", Path: "/proc/self/exe", Err: syscall.ENOENT}, "/proc is not mounted here: mount -t proc proc /proc, or start the container with it"},
		{at(syscall.EROFS), dir + " is mounted read-only: mount it so that it can be written, or name another place"},
		{at(syscall.EACCES), "it is write-protected, or another user's: name a place of yours"},
		{&fs.PathError{Op: "chmod", Path: file, Err: syscall.EPERM}, "the file system of " + dir + " cannot keep a file for its owner alone: name a place on another"},
		{&net.OpError{Op: "listen", Net: "unix", Err: os.NewSyscallError("bind", syscall.EIO)}, "the file system there may have no sockets: name a path on another"},
		{bind(syscall.ENOSPC), "make room in " + dir + ", or name a place on another disk"},
		{bind(syscall.EROFS), dir + " is mounted read-only: mount it so that it can be written, or name another place"},
		{bind(syscall.EACCES), "it is write-protected, or another user's: name a place of yours"},
		{bind(syscall.EPERM), "the file system there may have no sockets: name a path on another"},
		{exit.Hint(at(syscall.EACCES), "ask the operator"), "ask the operator"},
		{at(fs.ErrNotExist), ""}, // the file itself, which the error names
		{&fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}, ""}, // somebody else chose it
		{errors.New("something else"), ""},
	} {
		var out strings.Builder
		if code := exit.Report(t.Context(), &out, "usage", fmt.Errorf("serve: %w", c.err)); code != exit.Failed {
			t.Errorf("%v: exit code %d", c.err, code)
		}
		want := fmt.Sprintf("leasehold: serve: %v\n", c.err)
		if c.hint != "" {
			want += "hint: " + c.hint + "\n"
		}
		if out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
}

// A relative path means nothing in a directory that has been removed.
func TestARemovedDirectoryIsNamedAsTheCause(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	_, err := os.Create("file")
	if hint := exit.SystemHint(err); !strings.HasPrefix(hint, "the directory that you are in has been removed") {
		t.Errorf("%v: hint %q", err, hint)
	}
}
