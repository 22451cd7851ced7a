package pebble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine/memory"
)

// A backup is a copy of an open state that is being made.
type backup struct {
	mu  sync.Mutex
	ctx context.Context // guarded by mu; only the goroutine that holds mu writes files of the copy
}

// ErrInside refuses a backup within the directory of the state.
var ErrInside = errors.New("a backup must be outside the directory of the state")

// Backup copies the state into dir, which must not exist. Meanwhile the engine
// works as usual. The copy has every commit that was durable before the call. It
// may have some later ones, each whole and none without those before it. If
// Backup returns an error, there is no copy.
//
// Tables never change, so they are hard links if dir is on the same disk and its file
// system supports them. Such a copy costs little, and protects from mistakes but not from
// the loss of the disk.
func (e *Engine) Backup(ctx context.Context, dir string) error {
	var marks []byte
	return e.Hold(
		func() (err error) { marks, err = e.store.readMarksFile(); return err },
		func() error { return e.store.copyTo(ctx, dir, marks) })
}

// Backup copies a state that nobody has open; see [Engine.Backup].
func Backup(ctx context.Context, o Options, dir string) error {
	opened, err := OpenStore(o)
	if err != nil {
		return err
	}
	s := opened.(*store)
	marks, err := s.readMarksFile()
	if err == nil {
		err = s.copyTo(ctx, dir, marks)
	}
	return errors.Join(err, s.Close())
}

// copyTo makes a copy with these marks, which were read before: it must not lack a
// commit that they count.
func (s *store) copyTo(ctx context.Context, dir string, marks []byte) (err error) {
	b := &s.fs.backup
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx = ctx; ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if strings.HasPrefix(s.fs.PathJoin(dir, "x"), strings.TrimSuffix(s.fs.path("x"), "x")) {
		return fmt.Errorf("%w: %s", ErrInside, dir)
	}
	if _, err := s.fs.Stat(dir); err == nil {
		return fmt.Errorf("%s: %w", dir, os.ErrExist)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.fs.RemoveAll(dir))
		}
	}()
	if err := s.checkpoint(dir); err != nil {
		return err
	}
	if err := s.Failed(); err != nil {
		return err
	}
	c := &store{logf: s.logf, fs: &stateFS{FS: s.fs.FS, Failure: &s.Failure, dir: dir}}
	if err := c.endLog(); err != nil || marks == nil {
		return err
	}
	if m, ok := decodeMarks(marks); ok {
		c.number, c.marks = m.number, m.rows
		return c.writeMarks()
	}
	return c.writeFile(marksFile, func(vfs.File) []byte { return marks })
}

// checkpoint returns a panic of Pebble as an error. Pebble panics at some
// failures of the disk of the copy, and holds no lock then.
func (s *store) checkpoint(dir string) (err error) {
	defer func() { err = cmp.Or(panicked(recover()), err) }()
	return s.db.Checkpoint(dir, pebble.WithFlushedWAL())
}

// endLog cuts off what follows the last whole record of the last log. A log of a
// copy was copied while it was written, so later parts of it may be there and
// earlier ones not.
func (s *store) endLog() error {
	names, err := s.fs.List(s.fs.dir)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isLog(name) })
	if len(names) == 0 {
		return nil
	}
	last := slices.Max(names)
	number, _ := strconv.ParseUint(strings.TrimSuffix(last, ".log"), 10, 32)
	scan, err := s.scan(last, uint32(number))
	if err != nil {
		return err
	}
	return s.cut(last, scan.good)
}

// Trim frees the space that a closed state keeps for what will be written next.
func Trim(dir string) error {
	s := &store{fs: &stateFS{FS: vfs.Default, Failure: new(memory.Failure), dir: dir}}
	err := s.fs.FS.Remove(s.fs.path(reserveFile))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.endLog())
}

// A copiedFile is a file of a backup.
type copiedFile struct {
	vfs.File
	ctx context.Context // of the backup
}

func (s *stateFS) createCopy(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.create(name, category)
	if err != nil {
		return nil, err
	}
	return copiedFile{f, s.backup.ctx}, nil
}

func (f copiedFile) Write(p []byte) (n int, err error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	return f.File.Write(p)
}

// Link hides an [os.ErrPermission], which means that the file system has no hard links or
// that the system allows none. After any other error, Pebble copies the file.
func (s *stateFS) Link(oldname, newname string) error {
	err := s.FS.Link(oldname, newname)
	if errors.Is(err, os.ErrPermission) {
		err = errors.New(err.Error())
	}
	return err
}

// MkdirAll makes directories that only their owner can access.
func (s *stateFS) MkdirAll(name string, _ os.FileMode) error { return s.FS.MkdirAll(name, 0o700) }
