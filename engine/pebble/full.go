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
// fill the disk meanwhile. For that case a reserve file occupies space. A write that
// finds none gets a little of it, and the file is made whole again when there is
// plenty. Until then the disk counts as full, because the system may say that there is space
// where a quota, or the number of files, is used up. A state that is opened on a
// full disk keeps most of what is left.
//
// A program that never stops writing takes what the reserve gives up. So the
// reserve gives up little at a time, the file that needs it gets its blocks at once and
// before it is written, and a write that came too late gets more. Logs keep their
// blocks when they are used again.
const (
	reserveFile = "reserve"
	reserveSize = 16 << 20 // at most; an eighth of a small disk

	fullGrowth = 2 << 20 // at most, by how much the state may grow on a full disk; a quarter of a small reserve

	// lowRoom is the space below which a disk counts as full: a memtable must
	// still fit into a table, and a log must still grow.
	lowRoom = 64 << 20 // at most; a quarter of a small disk

	// What a write that found no space gets: the file's next bytes. The reserve gives
	// up twice as much, because another program may be faster.
	largeNeed = 64 << 10 // of a log or a table
	smallNeed = 8 << 10  // of other files, which are small

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

	flush atomic.Bool // the memtable is to be flushed

	// refused is set when Pebble could not write a table for want of room. The next one waits.
	refused atomic.Bool

	mu     sync.Mutex
	held   int64       // what is left of the reserve file; 0: it does not exist
	size   int64       // of the latest reserve
	logged int64       // how much of it logs got since flush was last set
	spent  bool        // a part was given to a write, and it is not whole again
	told   bool        // an operator was told that the disk is full
	retake *time.Timer // runs while there is no whole reserve; nil if the store is not open
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
		for size := min(reserveSize, usage.TotalBytes/8, usage.AvailBytes/4*3); size > 0 && !s.fs.hold(int64(size)); size /= 2 {
		}
	}
	s.lookLocked()
	r.retake = time.AfterFunc(retakeEvery, s.retakeReserve)
}

func (s *store) retakeReserve() {
	r := &s.fs.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retake == nil || r.held > 0 && !r.spent || s.Failed() != nil {
		return
	}
	if usage, err := s.fs.GetDiskUsage(s.fs.dir); err == nil {
		size := min(reserveSize, usage.TotalBytes/8)
		if usage.AvailBytes > lowOn(usage)+size && s.fs.hold(int64(size)) {
			r.spent = false
		}
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

// hold creates the reserve or makes it whole, and reports whether it could. If not,
// there is as much of it as before.
func (s *stateFS) hold(size int64) bool {
	path := s.path(reserveFile)
	open := s.create
	if s.room.held > 0 {
		open = func(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
			return s.FS.OpenReadWrite(name, category)
		}
	}
	f, err := open(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false
	}
	err = f.Preallocate(0, size)
	if f.Fd() != vfs.InvalidFd {
		layOut(f.Fd(), size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if s.room.held == 0 {
			_ = s.FS.Remove(path)
		}
		s.room.failed.Add(1)
		return false
	}
	s.room.held, s.room.size = size, size
	s.room.growth.Store(min(fullGrowth, size/4))
	return true
}

// Spent reports whether the process that has a state open in dir has no reserve, or
// only a part of one. It counts the disk as full, whatever the system says. A file
// without blocks is whole: some file systems, as ZFS, allocate nothing ahead.
func Spent(dir string) bool {
	var st syscall.Stat_t
	err := syscall.Stat(filepath.Join(dir, reserveFile), &st)
	return errors.Is(err, os.ErrNotExist) || err == nil && st.Blocks >= 8 && st.Blocks*512 < st.Size
}

// A need is what a write gets of the reserve.
type need struct {
	file  vfs.File // gets the blocks at its end; may be nil
	bytes int64
	keep  int64 // how many quarters of the reserve are kept from it, because it can wait until there is room
	log   bool
}

// yield gives a part of the reserve to a write that found no space, and reports
// whether the write may be tried again. failed is room.failed before the write.
func (s *stateFS) yield(failed uint64, n need) bool {
	s.room.mu.Lock()
	defer s.room.mu.Unlock()
	s.room.full.Store(true)
	if s.room.held == 0 {
		return s.room.failed.Load() != failed
	}
	if s.room.held <= s.room.size/4*n.keep {
		return false
	}
	s.room.spent = true
	if n.log {
		if s.room.logged += n.bytes; s.room.logged >= s.room.size/16 {
			s.room.logged = 0
			s.room.flush.Store(true)
		}
	}
	if s.room.retake != nil {
		s.room.retake.Reset(retakeEvery)
	}
	return s.give(n)
}

// flushIfFull flushes the memtable after logs got much of the reserve: its table is
// small, because most of what changes is changed again or deleted soon, and the
// blocks of its logs can be used again. It does not wait, and begins no flush while
// one waits for room.
func (s *store) flushIfFull() error {
	if !s.fs.room.flush.Load() {
		return nil
	}
	if s.flushed != nil {
		select {
		case <-s.flushed:
		default:
			return nil
		}
	}
	s.fs.room.flush.Store(false)
	if s.db.Metrics().Levels[0].Sublevels >= 8 { // at 12 all writers wait for a compaction, which may have no room
		return nil
	}
	flushed, err := s.db.AsyncFlush()
	s.flushed = flushed
	return err
}

// give takes from the end of the reserve, or removes it if it is used up or no part of
// it can be taken.
func (s *stateFS) give(n need) bool {
	path := s.path(reserveFile)
	if s.room.held -= 2 * n.bytes; s.room.held > 0 {
		if f, err := s.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err == nil {
			given := f.Fd() != vfs.InvalidFd && punch(f.Fd(), s.room.held, 2*n.bytes)
			if given {
				n.claim()
			}
			_ = f.Close()
			if given {
				return true
			}
		}
	}
	s.room.held = 0
	err := s.FS.Remove(path)
	n.claim()
	return err == nil
}

// claim allocates the next blocks of the file. If it fails, the write may still
// find space.
func (n need) claim() {
	if n.file != nil && n.file.Fd() != vfs.InvalidFd {
		layAhead(n.file.Fd(), n.bytes)
	}
}

// withRoom performs a write. As long as the write finds no space and the reserve
// gives up some, or was just being created in vain, withRoom tries again.
func (s *stateFS) withRoom(n need, do func() error) error {
	for {
		failed := s.room.failed.Load()
		err := do()
		if !isFull(err) || !s.yield(failed, n) {
			return err
		}
	}
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
