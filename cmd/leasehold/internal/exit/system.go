package exit

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SystemHint returns what to do about an error of the file system, or "" if nothing is
// known about it. It is for errors that nobody has given a better hint.
func SystemHint(err error) string {
	if call, ok := errors.AsType[*os.SyscallError](err); ok && call.Syscall == "getwd" {
		return lostPlace
	}
	if errors.Is(err, syscall.EFBIG) {
		return "no file may become that large here: raise the limit, which is ulimit -f, or LimitFSIZE in a unit of systemd"
	}
	if errors.Is(err, syscall.EMFILE) {
		return "this process may have no more files open: raise the limit, which is ulimit -n, or LimitNOFILE in a unit of systemd"
	}
	if errors.Is(err, syscall.ENOLCK) {
		return "no file can be locked there, as on NFS without its lock service: name a place on a disk of this machine with XDG_STATE_HOME and XDG_RUNTIME_DIR, or start that service"
	}
	if errors.Is(err, syscall.ENOSYS) {
		return "the kernel, or the rules of this container (seccomp), lack that system call: allow it, or run leasehold elsewhere"
	}
	if errors.Is(err, syscall.ELOOP) {
		return looped
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "listen" {
		switch failed.Net {
		case "tcp":
			return listenHint(failed)
		case "unix":
			switch number, _ := errors.AsType[syscall.Errno](err); {
			case failed.Addr == nil:
			case number == syscall.ENOSPC, number == syscall.EDQUOT, number == syscall.EROFS, number == syscall.EACCES:
				return SystemHint(&fs.PathError{Op: "bind", Path: failed.Addr.String(), Err: number})
			}
			return "the file system there may have no sockets: name a path on another"
		}
	}
	failed, ok := errors.AsType[*fs.PathError](err)
	if link, linked := errors.AsType[*os.LinkError](err); linked && !ok { // of a rename, too
		failed, ok = &fs.PathError{Op: link.Op, Path: link.New, Err: link.Err}, true
	}
	if !ok || strings.HasPrefix(failed.Path, "/dev/") {
		return ""
	}
	dir, unknown := filepath.Abs(filepath.Dir(failed.Path)) // "." reads badly
	if unknown != nil {
		return lostPlace
	}
	switch {
	case failed.Op == "fork/exec" && errors.Is(failed, syscall.EAGAIN):
		return "this user may have no more processes: end some, or raise the limit, which is ulimit -u, or TasksMax in a unit of systemd"
	case failed.Path == os.Getenv("TMPDIR") && errors.Is(failed, fs.ErrNotExist):
		return "TMPDIR names that directory: make it, or name another"
	case errors.Is(failed, syscall.EIO):
		return diskFails(dir)
	case failed.Op == "chmod":
		return "the file system of " + dir + " cannot keep a file for its owner alone: name a place on another"
	case errors.Is(failed, syscall.ENOSPC) && withoutFiles(dir):
		return "the file system of " + dir + " can have no more files: remove some that nobody needs, or name a place on another disk"
	case errors.Is(failed, syscall.ENOSPC), errors.Is(failed, syscall.EDQUOT):
		return "make room in " + dir + ", or name a place on another disk"
	case errors.Is(failed, syscall.EROFS):
		return dir + " is mounted read-only: mount it so that it can be written, or name another place"
	case errors.Is(failed, syscall.ENOTDIR):
		return "a part of that path is a file: name a place in a directory"
	case errors.Is(failed, fs.ErrPermission):
		return "it is write-protected, or another user's: name a place of yours"
	case errors.Is(failed, fs.ErrExist) && failed.Op == "mkdir":
		return leadsNowhere(failed.Path)
	case errors.Is(failed, fs.ErrNotExist) && strings.HasPrefix(failed.Path, "/proc/self/"):
		return "/proc is not mounted here: mount -t proc proc /proc, or start the container with it"
	case errors.Is(failed, fs.ErrNotExist):
		if hint := leadsNowhere(dir); hint != "" {
			return hint
		}
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
			return "there is no directory " + dir + ": make it, or correct the path"
		}
	}
	return ""
}

// listenHint returns what to do about an address at which nothing can listen.
func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: choose another port, or 0 for any that is free"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "that is not an address of this machine: choose one that is, such as 127.0.0.1"
	case errors.Is(err, syscall.EACCES):
		return "that port is for root: choose another, from 1024 on"
	}
	return "an address is HOST:PORT, such as 127.0.0.1:7711"
}

// withoutFiles reports whether a file system has no room for more files. It may still
// have space. Whoever failed may have removed some of its own files since.
func withoutFiles(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Files > 0 && s.Ffree < fewFiles
}

// fewFiles is more than the files that one command makes before one more is too many.
const fewFiles = 16

// leadsNowhere returns what to do about a directory that cannot be reached although its
// name is taken: a link to one that is not there, as below a mount point where nothing is
// mounted, a link to itself, or a directory of a disk that fails.
func leadsNowhere(dir string) string {
	_, err := os.Stat(dir)
	switch {
	case errors.Is(err, syscall.EIO):
		return diskFails(dir)
	case errors.Is(err, syscall.ELOOP):
		return looped
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	}
	to, err := os.Readlink(dir)
	if err != nil {
		return ""
	}
	return dir + " is a link to " + to + ", which does not exist: mount or make it, or remove the link"
}

const lostPlace = "the directory that you are in has been removed, or cannot be read: change to another"

const looped = "a link in that path leads back to itself: remove it, or name another place"

func diskFails(dir string) string {
	return "the disk that has " + dir + " fails: the log of the system, as dmesg shows it, says more; repair the disk, or name a place on another"
}
