package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// ErrSocketInUse is returned by ListenSocket if another daemon listens there.
var ErrSocketInUse = errors.New("another daemon listens there")

// maxSocketPath is the greatest length of a socket's path, without its final
// zero.
var maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// ListenSocket listens at path for processes of this user. It creates the
// directory if necessary with mode 0700, and the socket with 0600. A socket
// that a dead daemon left behind is replaced. If a daemon listens there, the
// error is [ErrSocketInUse].
//
// A lock file beside the socket, held until Close, decides who may replace the
// socket. Checking whether a daemon answers would not be enough: two daemons
// that start at once would both find none, and the second would take the path
// from the first.
func ListenSocket(path string) (*SocketListener, error) {
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := checkPrivate(dir); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lock, err := lockFile(SocketLock(path))
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	ln, err := replaceSocket(path)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &SocketListener{path: path, ln: ln, lock: lock}, nil
}

// CheckSocketPath returns an error if a path is too long for a socket.
func CheckSocketPath(path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %q has %d bytes, and this system allows %d: choose a shorter one",
			path, len(path), maxSocketPath)
	}
	return nil
}

// checkPrivate returns an error if another user could replace a socket in a
// directory.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("its directory %s belongs to user %d: run as that user, or name another place", dir, stat.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("others may write in its directory, mode %v: chmod 700 %s", info.Mode(), dir)
	}
	if above := OpenAbove(dir); above != "" {
		return fmt.Errorf("others may move its directory away, as they may write in %s: chmod o-w %s, or chmod +t if they are to", above, above)
	}
	return nil
}

// OpenAbove returns the nearest directory above path in which every user may rename what
// is there, or "" if there is none. In a directory with the sticky bit, such as /tmp, only
// the owner of a file may. A directory that its group may write counts as closed, because
// on many systems each user has a group of its own.
func OpenAbove(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return "" // this process has no directory any more, and whoever uses path will see that
	}
	if open := openAbove(path); open != "" {
		return open
	}
	for at := path; ; at = filepath.Dir(at) { // the path itself may not exist yet
		if target, err := filepath.EvalSymlinks(at); err == nil {
			return openAbove(target)
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

func openAbove(path string) string {
	for dir := filepath.Dir(path); dir != path; path, dir = dir, filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return dir
		}
	}
	return ""
}

// SocketLock is the file that whoever listens at a path has locked.
func SocketLock(path string) string { return path + ".lock" }

// lockFile takes a lock that is released by Close or by the end of the process. It
// follows no symbolic link: in a directory such as /tmp it may be one of another user, to
// make a file of this user elsewhere.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, and must be a file: remove it", path)
	}
	if err != nil {
		return nil, err
	}
	locked, err := process.TryLock(f)
	if err == nil && !locked {
		err = ErrSocketInUse
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// replaceSocket listens at path, for which the caller has the lock.
func replaceSocket(path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, errors.New("a file that is not a socket is in its place")
	default:
		// A process that does not use the lock may still listen.
		if nc, err := net.DialTimeout("unix", path, time.Second); err == nil {
			nc.Close()
			return nil, ErrSocketInUse
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Linux creates the socket with the mode of its descriptor. On other
	// systems the chmod below comes an instant later; peers are checked in any
	// case.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
	ln, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// A SocketListener owns the path that it listens on. Close removes the socket.
type SocketListener struct {
	path string

	mu     sync.Mutex
	ln     net.Listener
	lock   *os.File
	closed bool
	err    error // of the close
}

func (l *SocketListener) Accept() (net.Conn, error) {
	for {
		ln := l.listener()
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) && l.listener() != ln {
			continue // Restore has replaced it
		}
		return nc, err
	}
}

func (l *SocketListener) Addr() net.Addr { return l.listener().Addr() }

func (l *SocketListener) listener() net.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ln
}

// Restore listens again if the socket has been removed, as when the system removes
// the user's runtime directory at the end of the last log-in. It reports whether it
// had to. Connections that are open stay so.
func (l *SocketListener) Restore() (restored bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, err := os.Lstat(l.path); {
	case l.closed || err == nil:
		return false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	old, lock := l.ln, l.lock
	if l.ownsPathLocked() {
		ln, err := replaceSocket(l.path)
		if err != nil {
			return false, fmt.Errorf("socket %s: %w", l.path, err)
		}
		l.ln = ln
		return true, old.Close()
	}
	again, err := ListenSocket(l.path)
	if err != nil {
		return false, err
	}
	l.ln, l.lock = again.ln, again.lock
	return true, errors.Join(old.Close(), lock.Close())
}

// ownsPathLocked reports whether the lock of this listener is still the one of its
// path. If its directory was removed, another daemon may have the path by now.
func (l *SocketListener) ownsPathLocked() bool {
	mine, err := l.lock.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(SocketLock(l.path))
	return err == nil && os.SameFile(mine, there)
}

func (l *SocketListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.err
	}
	l.closed = true
	// The order matters: the next holder of the lock finds no socket of
	// this process, and creates one that this process does not remove.
	l.err = l.ln.Close()
	if l.ownsPathLocked() {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			l.err = errors.Join(l.err, err)
		}
	}
	l.lock.Close()
	return l.err
}
