package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine/memory"
)

// A stateFS is the file system that Pebble uses. Its files are accessible to
// their owner only, and logs get their size before they are written.
//
// Above all it protects the process from a failing disk. Pebble ends the
// process when a change of its log or manifest fails, in some places by a panic
// that holds locks and cannot be recovered from. A stateFS instead records the
// failure as the store's own and reports success to Pebble. From then on
// nothing reaches the disk: it stays as a crash would leave it, which Pebble
// can recover from, and all writes until the store is closed are discarded. No
// caller is answered with such a write, because each commit checks for a
// failure after its sync.
//
// Tables are treated differently once the store is open, because Pebble reads them
// again. Pebble is told of their failures; it reports them and does not end the
// process. Pebble's Open would write them again for ever.
type stateFS struct {
	vfs.FS
	*memory.Failure // of the store
	dir             string
	locked          os.FileInfo // the lock's file; nil if dir is not on the real disk
	phase           atomic.Int32
	room            room
	backup          backup
}

// The phases of a store.
const (
	inspecting = iota // what reads and changes the files gets its errors itself
	opening           // Pebble opens, and what it has is completed
	serving
)

func (s *stateFS) Unwrap() vfs.FS { return s.FS }

// path returns the path of a file of the state.
func (s *stateFS) path(name string) string { return s.PathJoin(s.dir, name) }

// outside reports whether a file is not of the state, but of a backup. A
// failure there is no failure of the store.
func (s *stateFS) outside(name string) bool {
	home := s.PathDir(s.path("file"))
	return s.PathDir(name) != home && s.PathJoin(name) != home
}

// discarding reports whether writes must no longer reach the disk.
func (s *stateFS) discarding() bool { return s.phase.Load() != inspecting && s.Failed() != nil }

// spare returns the error to report to Pebble after a change of a file failed
// with err.
func (s *stateFS) spare(name string, err error) error {
	if err == nil || s.phase.Load() == inspecting || s.isTable(name) {
		return err
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok && err.Error() == number.Error() { // of a sync, without the file
		err = &os.PathError{Op: "sync", Path: name, Err: number}
	}
	s.Fail(err)
	return nil
}

// isTable reports whether Pebble is told of failures of a file.
func (s *stateFS) isTable(name string) bool {
	return s.phase.Load() != opening && (strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob"))
}

var errDiscarded = errors.New("engine: nothing is written after a failure")

func (s *stateFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if s.outside(name) {
		return s.createCopy(name, category)
	}
	if s.discarding() {
		if s.isTable(name) {
			time.Sleep(tryAgain)
			return nil, errDiscarded
		}
		return nullFile{}, nil
	}
	if s.isTable(name) && s.room.refused.Swap(false) {
		time.Sleep(tryAgain)
	}
	var f vfs.File
	room := need{bytes: smallNeed}
	err := s.withRoom(room, func() (err error) { f, err = s.create(name, category); return err })
	if err != nil {
		if err := s.spare(name, err); err != nil {
			return nil, err
		}
		return nullFile{}, nil
	}
	room.file = f
	switch {
	case isLog(name):
		room.bytes, room.log = largeNeed, true
	case s.isTable(name):
		room.bytes, room.keep = largeNeed, 2
		if category == compaction {
			room.keep = 3
		}
	}
	made := &stateFile{File: f, s: s, name: name, need: room}
	if isLog(name) {
		s.markLog(name)
		made.log = new(layout)
	}
	return made, nil
}

const (
	compaction vfs.DiskWriteCategory = "pebble-compaction" // Pebble's name for it

	tryAgain = 50 * time.Millisecond // Pebble tries to write a table again immediately, and for ever
)

// liveMark is the suffix of an empty file that exists only while its log must
// exist. Without it, nothing would show that the first or the last log of a
// state was removed.
const liveMark = ".live"

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// markLog marks a new log. Errors are ignored, because a log without a mark is
// still usable. A mark without a log would be refused, so the log is made
// durable first.
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

// create creates a file that only its owner can access.
func (s *stateFS) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	if real, ok := f.(interface{ Chmod(os.FileMode) error }); ok {
		if err := real.Chmod(0o600); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// ReuseForWrite creates a new file instead, because that is faster. On a full
// disk it keeps the old one, because another program could take its blocks.
func (s *stateFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if s.room.full.Load() && !s.discarding() {
		if f, err := s.reuse(oldname, newname, category); err == nil {
			return f, nil
		}
	}
	if err := s.Remove(oldname); err != nil {
		return nil, err
	}
	return s.Create(newname, category)
}

// reuse makes a log of zeros of an old log. With what the old log had, the rest of
// the new one would look like damage.
func (s *stateFS) reuse(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := s.unmarkLog(oldname); err != nil {
		return nil, err
	}
	f, err := s.FS.OpenReadWrite(oldname, category)
	if err != nil {
		return nil, err
	}
	size, err := clearFile(f)
	if err == nil {
		err = s.FS.Rename(oldname, newname)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.markLog(newname)
	return &stateFile{File: f, s: s, name: newname, need: need{file: f, bytes: largeNeed, log: true}, log: &layout{size: size}}, nil
}

// clearFile overwrites a file with zeros, and returns its size. When it returns,
// the zeros are on disk.
func clearFile(f vfs.File) (size int64, err error) {
	old, zeros := make([]byte, logBlock), make([]byte, logBlock)
	for {
		n, err := f.ReadAt(old, size)
		if !bytes.Equal(old[:n], zeros[:n]) { // the rest of a log has no blocks yet, or is zero
			if _, err := f.WriteAt(zeros[:n], size); err != nil {
				return 0, err
			}
		}
		size += int64(n)
		if err == io.EOF {
			return size, f.Sync()
		}
		if err != nil {
			return 0, err
		}
	}
}

// read returns the content of a file of the state, or nil if there is none.
func (s *stateFS) read(name string) (content []byte, err error) {
	f, err := s.FS.Open(s.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content, err = io.ReadAll(f)
	return content, errors.Join(err, f.Close())
}

func (s *stateFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	if err != nil || s.outside(name) {
		return f, err
	}
	return &stateFile{File: f, s: s, name: name}, nil
}

func (s *stateFS) Rename(oldname, newname string) error {
	if s.discarding() {
		return nil
	}
	return s.spare(newname, s.FS.Rename(oldname, newname))
}

// Remove returns errors to Pebble, since a file that is not removed does no
// harm.
func (s *stateFS) Remove(name string) error {
	if s.outside(name) {
		return s.FS.Remove(name)
	}
	if s.discarding() {
		return nil
	}
	if isLog(name) {
		if err := s.unmarkLog(name); err != nil {
			return err
		}
	}
	return s.FS.Remove(name)
}

// unmarkLog removes the mark of a log before the log, because a mark without a log
// would be refused.
func (s *stateFS) unmarkLog(name string) error {
	err := s.FS.Remove(name + liveMark)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = s.syncDir()
	}
	return err
}

// A stateFile is a file or directory that Pebble changes.
type stateFile struct {
	vfs.File
	s    *stateFS
	name string
	need need    // of a write on a full disk
	log  *layout // nil if the file is not a log
	mem  []byte  // the file in memory, for WriteAt; nil if it is not mapped
}

// A layout is how far a log has been written, and its size. The size is kept
// larger, because an fsync of a file that grows takes longer.
type layout struct {
	end, size int64
}

// before makes sure that n more bytes fit. If this fails, the log is only
// slower.
func (l *layout) before(n int, f vfs.File) {
	l.end += int64(n)
	if l.end > l.size && f.Fd() != vfs.InvalidFd {
		l.size = l.end + logStep
		layOut(f.Fd(), l.size)
	}
}

// change performs a change, unless changes are discarded.
func (f *stateFile) change(do func() error) error {
	if !f.s.discarding() {
		return f.s.spare(f.name, do())
	}
	if f.s.isTable(f.name) {
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
		return f.s.withRoom(f.need, func() error {
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

// WriteAt writes to the journal. It returns an error if the disk is full. The
// batch is then only in the log, for which the reserve is kept.
func (f *stateFile) WriteAt(p []byte, off int64) (n int, err error) {
	var full error
	err = f.change(func() error {
		if f.mem != nil {
			full = writeMapped(f.mem, p, off)
			return nil
		}
		_, err := f.File.WriteAt(p, off)
		if isFull(err) {
			full, err = err, nil
		}
		return err
	})
	if err = errors.Join(err, full); err != nil {
		return 0, err
	}
	return len(p), nil
}

// mapFile maps the file, so that WriteAt needs no system call. What is stored in
// the mapping survives the end of the process, as what is written does. If the
// file cannot be mapped, it is written.
func (f *stateFile) mapFile(size int) {
	if f.Fd() != vfs.InvalidFd {
		f.mem = mapFile(f.Fd(), size)
	}
}

// writeMapped writes the beginning of p last, so that the end of the process
// does not leave a record's head without its rest. The system answers a store
// into a page that it cannot read or allocate with a fault.
func writeMapped(mem, p []byte, off int64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("write to a mapped file: %v", fault)
		}
	}()
	copy(mem[off+journalHead:], p[journalHead:])
	copy(mem[off:], p[:journalHead])
	return nil
}

func (f *stateFile) Sync() error     { return f.change(f.File.Sync) }
func (f *stateFile) SyncData() error { return f.change(f.File.SyncData) }

func (f *stateFile) SyncTo(length int64) (full bool, err error) {
	err = f.change(func() (err error) { full, err = f.File.SyncTo(length); return err })
	return full, err
}

// Preallocate does nothing. Pebble calls it for logs only, with the size of a
// large memtable, and these get their size from layout in smaller steps.
func (f *stateFile) Preallocate(offset, length int64) error { return nil }

func (f *stateFile) Close() error {
	if f.mem != nil {
		_ = unmap(f.mem) // never fails
		f.mem = nil
	}
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
