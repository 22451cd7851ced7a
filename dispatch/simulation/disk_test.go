package simulation

import (
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A disk is the machine's disk. It has limited room, and a sync takes a while.
type disk struct {
	mu    sync.Mutex
	left  int64         // bytes that can be written; plenty: any number
	kept  int64         // bytes of the file that the store keeps for when the disk is full
	freed time.Duration // when there was room again
}

const (
	plenty   = math.MaxInt64
	diskSize = 1 << 40
	reserve  = "reserve" // the file that the store keeps for when the disk is full
)

// room sets how many bytes are left.
func (d *disk) room(left int64, now time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = left
	if left == plenty {
		d.freed = now
	}
}

// full reports whether there is little room now, or has been since.
func (d *disk) full(since time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left < plenty || d.freed >= since
}

// wrap returns fs on this disk.
func (d *disk) wrap(fs vfs.FS) vfs.FS { return diskFS{fs, d} }

// take takes room for a write.
func (d *disk) take(name string, n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.left == plenty:
	case d.left < n:
		return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
	default:
		d.left -= n
	}
	return nil
}

// keepLocked sets the size of the reserve.
func (d *disk) keepLocked(n int64) {
	if d.left < plenty {
		d.left += d.kept - n
	}
	d.kept = n
}

type diskFS struct {
	vfs.FS
	disk *disk
}

func (fs diskFS) Unwrap() vfs.FS { return fs.FS }

func (fs diskFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	fs.disk.mu.Lock()
	defer fs.disk.mu.Unlock()
	return vfs.DiskUsage{AvailBytes: uint64(min(fs.disk.left, diskSize)), TotalBytes: diskSize}, nil
}

// Remove makes room where the file is the store's reserve. Others are small.
func (fs diskFS) Remove(name string) error {
	err := fs.FS.Remove(name)
	fs.disk.mu.Lock()
	defer fs.disk.mu.Unlock()
	if err == nil && filepath.Base(name) == reserve {
		fs.disk.keepLocked(0)
	}
	return err
}

func (fs diskFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.disk.take(name, 4<<10); err != nil {
		return nil, err
	}
	return fs.file(name)(fs.FS.Create(name, c))
}

func (fs diskFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return fs.file(name)(fs.FS.OpenReadWrite(name, c, opts...))
}

func (fs diskFS) file(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &diskFile{File: f, disk: fs.disk, name: name}, nil
	}
}

type diskFile struct {
	vfs.File
	disk    *disk
	name    string
	written atomic.Int64
}

// slowLog is how long a log is when its syncs become quick. A log is closed once
// Pebble's memtable is full, of 256 KiB at least. It is synced then under mutexes,
// and the bubble's clock stands still for whoever waits for one.
const slowLog = 60 << 10

// slow lets a sync of a log take a while, so that there are instants within a
// commit at which calls can be cancelled and connections lost.
func (f *diskFile) slow() {
	if filepath.Ext(f.name) == ".log" && f.written.Load() < slowLog {
		time.Sleep(2 * time.Millisecond)
	}
}

func (f *diskFile) Sync() error {
	f.slow()
	return f.File.Sync()
}

func (f *diskFile) SyncData() error {
	f.slow()
	return f.File.SyncData()
}

func (f *diskFile) SyncTo(length int64) (bool, error) {
	f.slow()
	return f.File.SyncTo(length)
}

func (f *diskFile) Preallocate(off, n int64) error {
	if filepath.Base(f.name) == reserve {
		f.disk.mu.Lock()
		f.disk.keepLocked(n)
		f.disk.mu.Unlock()
	}
	return f.File.Preallocate(off, n)
}

func (f *diskFile) Write(p []byte) (int, error) {
	if err := f.disk.take(f.name, int64(len(p))); err != nil {
		return 0, err
	}
	f.written.Add(int64(len(p)))
	return f.File.Write(p)
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.disk.take(f.name, int64(len(p))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}
