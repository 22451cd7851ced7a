package pebble

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
)

// pidFile names the process that holds the directory's lock, for messages to
// others. The lock itself ends with the process, whatever the file says.
const pidFile = "pid"

// A dirLock is the directory's lock while it is held.
type dirLock struct {
	s *stateFS
	io.Closer
}

// Lock takes the directory's lock and writes pidFile.
func (s *stateFS) Lock(name string) (io.Closer, error) {
	held, err := s.FS.Lock(name)
	if err != nil {
		return nil, s.lockError(err)
	}
	if s.FS == vfs.Default {
		_ = os.Chmod(name, 0o600)
		s.locked, _ = os.Stat(name)
	}
	s.writePid()
	return dirLock{s, held}, nil
}

func (l dirLock) Close() error {
	// The file is removed before the lock is released: after that it may be
	// another's. It stays if the start failed before a new state had its marks:
	// see checkFiles.
	if _, err := l.s.Stat(l.s.path(marksFile)); err == nil && l.s.checkPlace() == nil {
		_ = l.s.FS.Remove(l.s.path(pidFile))
	}
	return l.Closer.Close()
}

// ErrReplaced says that the directory of a state is not the one that was opened:
// it was removed or moved, and maybe replaced by another.
var ErrReplaced = errors.New("the state was removed, moved or replaced while it was open")

// CheckPlace returns [ErrReplaced] if the directory is not the one that was
// opened. From then on nothing is written there, because another process may have
// opened what is there now.
func (e *Engine) CheckPlace() error {
	err := e.store.fs.checkPlace()
	if err != nil {
		e.store.Fail(err)
	}
	return err
}

func (s *stateFS) checkPlace() error {
	if s.locked == nil {
		return nil
	}
	found, err := os.Stat(s.path("LOCK")) // Pebble's name for it
	if errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(found, s.locked) {
		return ErrReplaced
	}
	return nil
}

// writePid ignores errors, because the lock does not depend on the file.
func (s *stateFS) writePid() {
	f, err := s.Create(s.path(pidFile), vfs.WriteCategoryUnspecified)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintln(f, os.Getpid())
	_ = f.Close()
}

func (s *stateFS) lockError(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err // the file could not be opened, so nobody was asked for the lock
	}
	// If this process itself holds the lock, the error has no sentinel.
	if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) &&
		!strings.Contains(err.Error(), "held by current process") {
		return fmt.Errorf("lock it: %w", err)
	}
	holder := "its pid is not known"
	if f, err := s.FS.Open(s.path(pidFile)); err == nil {
		b, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = fmt.Sprintf("pid %d", pid)
		}
	}
	return fmt.Errorf("%w: %s (%s)", engine.ErrLocked, s.dir, holder)
}
