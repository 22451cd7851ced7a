package pebble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file handles a full disk. While the disk has little space, Full makes
// the engine refuse writes that make the state grow, so that releases and
// deletions, which also write to the log, still find some. Other programs may
// fill the disk meanwhile. For that case a reserve file occupies space; it is
// removed when a write finds none, and created again when there is plenty. Until
// then the disk counts as full, because the system may say that there is space
// where a quota, or the number of files, is used up. A state that is opened on a
// full disk keeps most of what is left.
const (
	reserveFile = "reserve"
	reserveSize = 16 << 20 // at most; an eighth of a small disk

	fullGrowth = 2 << 20 // at most, by how much the state may grow on a full disk; a quarter of a small reserve

	// lowRoom is the space below which a disk counts as full: a memtable must
	// still fit into a table, and a log must still grow.
	lowRoom = 64 << 20 // at most; a quarter of a small disk

	lookEvery = 20 * time.Millisecond // how often commits read the free space; a disk can fill quickly

	// retakeEvery is how often a store without a reserve looks for room by
	// itself: there may be no commit between two times when the disk is full.
	retakeEvery = time.Second
)

// A room is what is known about the free space on the disk.
type room struct {
	full   atomic.Bool
	growth atomic.Int64 // bytes by which the state may grow nevertheless: part of the latest reserve
	next   time.Time    // when a commit looks again; used by Full only

	looks sync.WaitGroup // goroutines that read the free space

	// failed is how often the reserve could not be created. Each time it may have
	// taken the last space for a moment.
	failed atomic.Uint64

	mu     sync.Mutex
	held   bool        // the reserve file exists
	spent  bool        // it was removed for a write and does not exist again
	told   bool        // an operator was told that the disk is full
	retake *time.Timer // runs while there is no reserve; nil if the store is not open
}

// Full implements [memory.Store]. Its caller holds the lock of the state, and the
// system may take milliseconds to say how much space is left. So if there was
// enough a moment ago, it is asked on another goroutine, and the answer counts from
// then on.
func (s *store) Full() (full bool, growth int) {
	r := &s.fs.room
	if now := time.Now(); !now.Before(r.next) {
		late := now.Sub(r.next) > 4*lookEvery
		if r.next = now.Add(lookEvery); late || r.full.Load() {
			s.look()
		} else {
			r.looks.Go(s.look)
		}
	}
	return r.full.Load(), int(r.growth.Load())
}

// look reads the free space of an open store.
func (s *store) look() {
	r := &s.fs.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retake != nil {
		s.lookLocked()
	}
}

func (s *store) lookLocked() {
	r := &s.fs.room
	usage, err := s.fs.GetDiskUsage(s.fs.dir)
	if err != nil {
		return // if the file system does not say, a write will show that it is full
	}
	low := usage.AvailBytes < lowOn(usage)
	full := low || r.spent
	r.full.Store(full)
	const refused = "new tasks and larger values are refused until there is room; releases, renewals and reads go on"
	switch {
	case full == r.told:
	case low:
		s.logf("engine: the disk of %s has %d MiB left: "+refused, s.fs.dir, usage.AvailBytes>>20)
	case full:
		s.logf("engine: the disk of %s has %d MiB left and takes no more, as where a quota or the number of files is used up: "+refused, s.fs.dir, usage.AvailBytes>>20)
	default:
		s.logf("engine: the disk of %s has room again", s.fs.dir)
	}
	r.told = full
}

// lowOn is the space below which a disk counts as full.
func lowOn(usage vfs.DiskUsage) uint64 { return min(lowRoom, usage.TotalBytes/4) }

// startReserve creates the reserve, and again whenever it was used and there is
// room. On a full disk the first reserve is three quarters of what is left, and less
// where a quota leaves less.
func (s *store) startReserve() {
	r := &s.fs.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if usage, err := s.fs.GetDiskUsage(s.fs.dir); err == nil {
		for size := min(reserveSize, usage.TotalBytes/8, usage.AvailBytes/4*3); !r.held && size > 0; size /= 2 {
			r.held = s.fs.hold(int64(size))
		}
	}
	s.lookLocked()
	r.retake = time.AfterFunc(retakeEvery, s.retakeReserve)
}

func (s *store) retakeReserve() {
	r := &s.fs.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retake == nil || r.held || s.Failed() != nil {
		return
	}
	if usage, err := s.fs.GetDiskUsage(s.fs.dir); err == nil {
		size := min(reserveSize, usage.TotalBytes/8)
		r.held = usage.AvailBytes > lowOn(usage)+size && s.fs.hold(int64(size))
		r.spent = r.spent && !r.held
	}
	s.lookLocked()
	r.retake.Reset(retakeEvery)
}

func (s *store) stopReserve() {
	r := &s.fs.room
	r.mu.Lock()
	r.retake.Stop()
	r.retake = nil
	r.mu.Unlock()
	r.looks.Wait()
}

// hold creates the reserve, and reports whether it could. If not, nothing of it is
// left.
func (s *stateFS) hold(size int64) bool {
	path := s.path(reserveFile)
	f, err := s.create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	err = f.Preallocate(0, size)
	if f.Fd() != vfs.InvalidFd {
		layOut(f.Fd(), size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = s.FS.Remove(path)
		s.room.failed.Add(1)
		return false
	}
	s.room.growth.Store(min(fullGrowth, size/4))
	return true
}

// Spent reports whether the process that has a state open in dir has no reserve. It
// counts the disk as full, whatever the system says.
func Spent(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, reserveFile))
	return errors.Is(err, os.ErrNotExist)
}

// yield removes the reserve after a write found no space, and reports whether
// the write may be tried again. failed is room.failed before the write.
func (s *stateFS) yield(failed uint64) bool {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.full.Store(true)
	if !s.room.held {
		return s.room.failed.Load() != failed
	}
	s.room.held, s.room.spent = false, true
	if s.room.retake != nil {
		s.room.retake.Reset(retakeEvery)
	}
	return s.FS.Remove(s.path(reserveFile)) == nil
}

// withRoom performs a write. If the write found no space and the reserve could
// be released, or was just being created in vain, withRoom tries once more.
func (s *stateFS) withRoom(do func() error) error {
	failed := s.room.failed.Load()
	err := do()
	if isFull(err) && s.yield(failed) {
		err = do()
	}
	return err
}

// isFull reports whether an error says that a disk or a quota is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// needRoom returns an error if the disk has no space for what opening the state
// writes. It is called before Pebble opens, because Pebble would try for ever
// to write the tables of the logs that it has read. logs is the size of the
// logs in bytes.
func (s *stateFS) needRoom(logs int64) error {
	path := s.path(reserveFile)
	if err := s.FS.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // of a daemon that was killed
		return err
	}
	need := uint64(logs) + 1<<20
	if usage, err := s.GetDiskUsage(s.dir); err == nil && usage.AvailBytes < need {
		return fmt.Errorf("%w: %d KiB are left, and opening the state takes up to %d KiB", syscall.ENOSPC, usage.AvailBytes>>10, need>>10)
	}
	f, err := s.create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4<<10))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), s.FS.Remove(path))
}
