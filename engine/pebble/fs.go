package pebble

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine/memory"
)

// A stateFS is the file system as Pebble sees it. Files are for their owner
// alone, and logs are laid out before they are written.
//
// Above all it stands between Pebble and a failing disk. Pebble ends the
// process when a change of its log or manifest fails, at some places by a
// panic amid its locks that nothing can recover from. Here such a failure is
// made the store's own, and Pebble is told that all is well. From that instant
// nothing more reaches the disk: it stays as a crash would leave it, which is
// what Pebble recovers from, and every write until the store is closed is
// discarded. Nobody is told of what happens then, because each commit looks for
// a failure after its sync.
//
// Tables are another matter: Pebble reads them again, so it is told of their
// failures, of which it gives notice and does not end.
type stateFS struct {
	vfs.FS
	*memory.Failure // of the store
	dir             string
	opened          atomic.Bool // before, an Open can give every error back
	room            room
}

func (s *stateFS) Unwrap() vfs.FS { return s.FS }

// discarding reports whether nothing may reach the disk any more.
func (s *stateFS) discarding() bool { return s.opened.Load() && s.Failed() != nil }

// spare gives what Pebble is to hear of err, from a change of a file.
func (s *stateFS) spare(name string, err error) error {
	if err == nil || !s.opened.Load() || isTable(name) {
		return err
	}
	s.Fail(err)
	return nil
}

func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

var errDiscarded = errors.New("engine: nothing is written after a failure")

// refuse keeps Pebble from writing a table after a failure. It would try again
// at once, and for ever, so it is made to wait.
func refuse() error {
	time.Sleep(50 * time.Millisecond)
	return errDiscarded
}

func (s *stateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.make(name, func() (f vfs.File, err error) {
		err = s.withRoom(func() error { f, err = s.create(name, category); return err })
		if err == nil && isLog(name) {
			s.markLog(name)
		}
		return f, err
	})
}

// liveMark is added to the name of a log for an empty file that is there only as
// long as the log must be: nothing else tells that the first or the last log of a
// state was removed.
const liveMark = ".live"

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// markLog marks a log that was made. A log without its mark is none the worse, so
// errors do not matter; a mark without its log would be refused, so the log is on
// disk first.
func (s *stateFS) markLog(name string) {
	if s.syncDir() != nil {
		return
	}
	if f, err := s.create(name+liveMark, vfs.WriteCategoryUnspecified); err == nil {
		_ = f.Close()
	}
}

func (s *stateFS) syncDir() error {
	d, err := s.FS.OpenDir(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// create makes a file for its owner alone.
func (s *stateFS) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if f, ok := f.(interface{ Chmod(os.FileMode) error }); ok {
		if err := f.Chmod(0o600); err != nil {
			return f.(vfs.File), err
		}
	}
	return f, nil
}

// ReuseForWrite makes a new file all the same: what an older log has left behind
// the end of a log could not be told from damage.
func (s *stateFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.Remove(oldname); err != nil {
		return nil, err
	}
	return s.Create(newname, category)
}

func (s *stateFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return s.make(name, func() (vfs.File, error) {
		return s.FS.OpenReadWrite(name, category, opts...)
	})
}

func (s *stateFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &stateFile{File: f, s: s, name: name}, nil
}

// make gives a file to write, or one that discards what is written.
func (s *stateFS) make(name string, create func() (vfs.File, error)) (vfs.File, error) {
	if s.discarding() {
		if isTable(name) {
			return nil, refuse()
		}
		return nullFile{}, nil
	}
	f, err := create()
	if err == nil {
		return &stateFile{File: f, s: s, name: name, log: logOf(name, f)}, nil
	}
	if f != nil {
		_ = f.Close()
	}
	if err := s.spare(name, err); err != nil {
		return nil, err
	}
	return nullFile{}, nil
}

func (s *stateFS) Rename(oldname, newname string) error {
	if s.discarding() {
		return nil
	}
	return s.spare(newname, s.FS.Rename(oldname, newname))
}

// Remove gives errors on: a file that is left is no loss.
func (s *stateFS) Remove(name string) error {
	if s.discarding() {
		return nil
	}
	if isLog(name) && s.FS.Remove(name+liveMark) == nil {
		if err := s.syncDir(); err != nil {
			return err
		}
	}
	return s.FS.Remove(name)
}

// A stateFile is a file, or the directory, that Pebble changes.
type stateFile struct {
	vfs.File
	s    *stateFS
	name string
	log  *layout // nil for what is no log
}

// A layout is how far a log has been written and how large the file is. It is
// kept larger: an fsync of a file that grows takes longer.
type layout struct {
	end, size int64
}

func logOf(name string, f vfs.File) *layout {
	if !isLog(name) {
		return nil
	}
	l := new(layout)
	if info, err := f.Stat(); err == nil {
		l.size = info.Size() // of one that is used again
	}
	return l
}

// before makes room for n bytes. Without it the log is slower, no more.
func (l *layout) before(n int, f vfs.File) {
	l.end += int64(n)
	if l.end > l.size && f.Fd() != vfs.InvalidFd {
		l.size = l.end + logStep
		layOut(f.Fd(), l.size)
	}
}

// change does one change, unless changes are discarded.
func (f *stateFile) change(do func() error) error {
	if !f.s.discarding() {
		return f.s.spare(f.name, do())
	}
	if isTable(f.name) {
		return errDiscarded
	}
	return nil
}

func (f *stateFile) Write(p []byte) (n int, err error) {
	err = f.change(func() error {
		if f.log != nil {
			f.log.before(len(p), f.File)
		}
		rest := p
		return f.s.withRoom(func() error {
			n, err := f.File.Write(rest)
			rest = rest[n:]
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt is how the journal is written. It gives back that there is no room: then
// the log, for which the reserve is, takes the batch.
func (f *stateFile) WriteAt(p []byte, off int64) (n int, err error) {
	var full error
	err = f.change(func() error {
		_, err := f.File.WriteAt(p, off)
		if err != nil && vfs.IsNoSpaceError(err) {
			full, err = err, nil
		}
		return err
	})
	if err = errors.Join(err, full); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *stateFile) Sync() error     { return f.change(f.File.Sync) }
func (f *stateFile) SyncData() error { return f.change(f.File.SyncData) }

func (f *stateFile) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

func (f *stateFile) Preallocate(offset, length int64) error {
	if f.s.discarding() {
		return nil
	}
	return f.File.Preallocate(offset, length) // Pebble does without, too
}

func (f *stateFile) Close() error {
	err := f.File.Close()
	if f.s.discarding() {
		return nil
	}
	return f.s.spare(f.name, err)
}

// A nullFile discards whatever is written to it, and reports success.
type nullFile struct{}

func (nullFile) Close() error                           { return nil }
func (nullFile) Read([]byte) (int, error)               { return 0, errDiscarded }
func (nullFile) ReadAt([]byte, int64) (int, error)      { return 0, errDiscarded }
func (nullFile) Write(p []byte) (int, error)            { return len(p), nil }
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (nullFile) Preallocate(int64, int64) error         { return nil }
func (nullFile) Stat() (vfs.FileInfo, error)            { return nil, errDiscarded }
func (nullFile) Sync() error                            { return nil }
func (nullFile) SyncTo(int64) (bool, error)             { return false, nil }
func (nullFile) SyncData() error                        { return nil }
func (nullFile) Prefetch(int64, int64) error            { return nil }
func (nullFile) Fd() uintptr                            { return vfs.InvalidFd }
