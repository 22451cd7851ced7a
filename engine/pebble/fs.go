package pebble

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
)

// A stateFS is the file system as Pebble sees it. Files are for their owner
// alone, logs are laid out before they are written, and the directory's lock
// names its holder.
type stateFS struct {
	vfs.FS
	dir  string
	lock io.Closer
	gone atomic.Bool
}

// logSize is what a log is laid out to: what a full memtable leaves in it.
const logSize = memtableSize

// pidFile names the holder of the directory's lock, for whoever finds it taken.
const pidFile = "pid"

func (s *stateFS) Unwrap() vfs.FS { return s.FS }

func (s *stateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	s.halt()
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if f, ok := f.(interface{ Chmod(os.FileMode) error }); ok {
		if err := f.Chmod(0o600); err != nil {
			return nil, err
		}
	}
	if strings.HasSuffix(name, ".log") && f.Fd() != vfs.InvalidFd {
		layOut(f.Fd(), logSize) // without it the log only is slower
	}
	return f, nil
}

func (s *stateFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	s.halt()
	return s.FS.ReuseForWrite(oldname, newname, category)
}

func (s *stateFS) Remove(name string) error {
	s.halt()
	return s.FS.Remove(name)
}

func (s *stateFS) Rename(oldname, newname string) error {
	s.halt()
	return s.FS.Rename(oldname, newname)
}

// Lock takes the directory's lock and leaves a note of who has it.
func (s *stateFS) Lock(name string) (io.Closer, error) {
	lock, err := s.FS.Lock(name)
	if err != nil {
		return nil, s.lockError(err)
	}
	s.lock = lock
	if s.FS == vfs.Default {
		_ = os.Chmod(name, 0o600)
	}
	s.writePid()
	return lockCloser{s}, nil
}

type lockCloser struct{ s *stateFS }

func (l lockCloser) Close() error {
	// Before the lock: after it the note may be another's.
	_ = l.s.FS.Remove(l.s.pidPath())
	return l.s.lock.Close()
}

func (s *stateFS) pidPath() string { return s.FS.PathJoin(s.dir, pidFile) }

// writePid leaves this process's id. That it may fail is no harm: the lock
// holds without it.
func (s *stateFS) writePid() {
	f, err := s.Create(s.pidPath(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	fmt.Fprintln(f, os.Getpid())
	_ = f.Close()
}

func (s *stateFS) lockError(err error) error {
	// Pebble has no sentinel for a lock that this process has itself.
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) &&
		!strings.Contains(err.Error(), "held by current process") {
		return err
	}
	holder := "its pid is not known"
	if f, err := s.FS.Open(s.pidPath()); err == nil {
		b, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = fmt.Sprintf("pid %d", pid)
		}
	}
	return fmt.Errorf("%w: %s (%s)", engine.ErrLocked, s.dir, holder)
}

// abandon gives the directory up under a Pebble that cannot be closed: what
// is left running of it may change no file from here on, since the next to
// open the state may be at work in them.
func (s *stateFS) abandon() {
	s.gone.Store(true)
	if s.lock != nil {
		_ = lockCloser{s}.Close()
	}
}

// halt stops a goroutine of an abandoned Pebble for good. An error would have
// it try again without end.
func (s *stateFS) halt() {
	if s.gone.Load() {
		select {}
	}
}
