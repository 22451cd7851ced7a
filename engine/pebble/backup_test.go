package pebble_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/clock"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A backedUp is a state with writers. Each commit of a writer raises its three
// rows to the same number: a row, a cold row, and a mark for the first writer.
type backedUp struct {
	*pebble.Engine
	done [4]atomic.Uint64 // by writer: the number of its last durable commit
	stop chan struct{}
	wg   sync.WaitGroup
}

func (b *backedUp) write(t *testing.T, writer int, n uint64) {
	ctx := context.Background()
	if writer%2 == 0 {
		ctx = engine.Local(ctx)
	}
	value := string(binary.BigEndian.AppendUint64(nil, n))
	if err := b.Update(ctx, func(tx engine.Tx) error {
		tx.Put(engine.Row{Key: fmt.Sprintf("w%d", writer), Value: value})
		tx.Put(engine.Row{Key: fmt.Sprintf("%sw%d", engine.Cold, writer), Value: value + strings.Repeat("x", 300)})
		if writer == 0 && n%64 == 0 {
			tx.Put(engine.Row{Key: engine.Mark + "w", Value: value})
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	b.done[writer].Store(n)
}

func (b *backedUp) begin(t *testing.T) {
	for writer := range b.done {
		b.wg.Go(func() {
			for n := b.done[writer].Load() + 1; ; n++ {
				select {
				case <-b.stop:
					return
				default:
					b.write(t, writer, n)
				}
			}
		})
	}
}

func (b *backedUp) end() { close(b.stop); b.wg.Wait() }

// proveBackup checks a copy: it opens without a complaint, has every commit up
// to the numbers in least, and no part of a commit.
func proveBackup(t *testing.T, dir string, least [4]uint64) {
	t.Helper()
	e := mustOpen(t, pebble.Options{Dir: dir, Logf: func(format string, args ...any) {
		t.Errorf("opening a backup says: "+format, args...)
	}})
	defer mustClose(t, e)
	mustUpdate(t, e, func(tx engine.Tx) {
		for writer, least := range least {
			hot, _ := tx.Get(fmt.Sprintf("w%d", writer))
			cold, _ := tx.Get(fmt.Sprintf("%sw%d", engine.Cold, writer))
			if hot.Value+strings.Repeat("x", 300) != cold.Value {
				t.Errorf("the backup has a part of a commit of writer %d: %x, %.8x", writer, hot.Value, cold.Value)
			}
			if n := binary.BigEndian.Uint64([]byte(hot.Value)); n < least {
				t.Errorf("the backup has commit %d of writer %d, and %d was durable before it began", n, writer, least)
			}
		}
		mark, ok := tx.Get(engine.Mark + "w")
		if n, _ := tx.Get("w0"); !ok || mark.Value > n.Value {
			t.Errorf("the backup has mark %x, beyond commit %x", mark.Value, n.Value)
		}
	})
}

// TestABackupOfABusyStateHasWholeCommits makes backups while writers commit, and
// opens each.
func TestABackupOfABusyStateHasWholeCommits(t *testing.T) {
	dir := t.TempDir()
	b := &backedUp{Engine: mustOpen(t, pebble.Options{Dir: filepath.Join(dir, "state"), Logf: t.Logf}), stop: make(chan struct{})}
	defer mustClose(t, b.Engine)
	for writer := range b.done {
		b.write(t, writer, 64)
	}
	b.begin(t)
	defer b.end()
	for round := range 8 {
		if round == 4 {
			if err := b.Flush(); err != nil { // from here on there are tables, too
				t.Fatal(err)
			}
		}
		var least [4]uint64
		for writer := range least {
			least[writer] = b.done[writer].Load()
		}
		to := filepath.Join(dir, fmt.Sprint("backup", round))
		if err := b.Backup(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		proveBackup(t, to, least)
	}
}

// TestATrimmedStateIsSmallAndWhole trims a state that was closed.
func TestATrimmedStateIsSmallAndWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for n := range 3 {
		e := mustOpen(t, pebble.Options{Dir: dir, Logf: func(format string, args ...any) { t.Errorf(format, args...) }})
		mustUpdate(t, e, func(tx engine.Tx) {
			for i := range n {
				if _, ok := tx.Get(fmt.Sprint(i)); !ok {
					t.Errorf("row %d is lost", i)
				}
			}
			tx.Put(engine.Row{Key: fmt.Sprint(n)})
		})
		mustClose(t, e)
		if err := pebble.Trim(dir); err != nil {
			t.Fatal(err)
		}
		size := int64(0)
		entries, err := os.ReadDir(dir)
		for _, entry := range entries {
			info, missing := entry.Info()
			if err = errors.Join(err, missing); err == nil {
				size += info.Size()
			}
		}
		if err != nil || size > 64<<10 {
			t.Errorf("it has %d bytes: %v", size, err)
		}
	}
}

// pausing runs during after the first read of each log.
type pausing struct {
	vfs.FS
	during atomic.Pointer[func()]
}

func (p *pausing) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.FS.Open(name, opts...)
	if during := p.during.Load(); err == nil && during != nil && filepath.Base(filepath.Dir(name)) == "state" && strings.HasSuffix(name, ".log") {
		return &pausingFile{f, *during}, nil
	}
	return f, err
}

type pausingFile struct {
	vfs.File
	during func()
}

func (f *pausingFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.during()
	f.during = func() {}
	return n, err
}

// TestABackupOfALogThatGrowsEndsBeforeTheHole: a log has its size before it is
// written. So the copy of one block may end before what the next block has.
func TestABackupOfALogThatGrowsEndsBeforeTheHole(t *testing.T) {
	dir := t.TempDir()
	disk := &pausing{FS: vfs.Default}
	b := &backedUp{Engine: mustOpen(t, pebble.Options{Dir: filepath.Join(dir, "state"), Logf: t.Logf, FS: disk, Clock: clock.Machine()})}
	defer mustClose(t, b.Engine)
	var least [4]uint64
	for writer := range least {
		least[writer] = 64
		b.write(t, writer, 64)
	}
	paused := false
	grow := func() {
		paused = true
		for n := range uint64(500) {
			for writer := range b.done {
				b.write(t, writer, 65+n)
			}
		}
	}
	disk.during.Store(&grow)
	to := filepath.Join(dir, "backup")
	if err := b.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if !paused {
		t.Error("the log was not copied")
	}
	proveBackup(t, to, least)
}

// failingCopy fails writes of files that are not of the state.
type failingCopy struct {
	n     int64 // the write that fails, and all after it
	count atomic.Int64
}

func (f *failingCopy) String() string { return "failing copy" }

func (f *failingCopy) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || !strings.Contains(op.Path, "backup") || op.Kind == errorfs.OpRemoveAll {
		return nil
	}
	if f.count.Add(1) < f.n {
		return nil
	}
	return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
}

// TestABackupThatFailsIsNoneAndTheStateGoesOn fails a backup at each of its
// writes.
func TestABackupThatFailsIsNoneAndTheStateGoesOn(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("backups", 0o700); err != nil {
		t.Fatal(err)
	}
	failing := new(failingCopy)
	e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(mem, failing), Logf: t.Logf})
	defer mustClose(t, e)
	put := func(n int) {
		mustUpdate(t, e, func(tx engine.Tx) {
			tx.Put(engine.Row{Key: "k", Value: fmt.Sprint(n)})
			tx.Put(engine.Row{Key: engine.Mark + "k", Value: fmt.Sprint(n)})
		})
	}
	put(0)
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for n := 1; ; n++ {
		failing.n = int64(n)
		failing.count.Store(0)
		err := e.Backup(t.Context(), "backups/one")
		put(n)
		if err == nil {
			break
		}
		failures++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("with write %d: %v", n, err)
		}
		failing.count.Store(-1 << 40)
		if _, err := mem.Stat("backups/one"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("with write %d something is left of the backup: %v", n, err)
		}
	}
	if failures < 10 {
		t.Errorf("only %d writes failed", failures)
	}
	failing.n = 1 << 40
	if err := e.Backup(t.Context(), "backups/one"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a backup over another: %v", err)
	}
	for _, inside := range []string{"state", "state/backup", "state/a/../b/c"} {
		if err := e.Backup(t.Context(), inside); !errors.Is(err, pebble.ErrInside) {
			t.Errorf("a backup in %s, within the state: %v", inside, err)
		}
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(enough)
	if err := e.Backup(ctx, "backups/two"); !errors.Is(err, enough) {
		t.Errorf("a backup that is cancelled: %v", err)
	}
}

// A backup copies what it cannot link: vfat and many file systems of virtual machines have
// no hard links, and some systems allow none.
func TestABackupWithoutHardLinks(t *testing.T) {
	for _, cause := range []error{syscall.EPERM, syscall.EACCES} {
		links := 0
		noLinks := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind != errorfs.OpLink {
				return nil
			}
			links++
			return &os.LinkError{Op: "link", Old: op.Path, New: op.Path, Err: cause}
		})
		e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(vfs.NewMem(), noLinks), Logf: t.Logf})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: engine.Cold + "k", Value: "v"}) })
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := e.Backup(t.Context(), "backup"); err != nil || links == 0 {
			t.Errorf("where %d links fail with %v: %v", links, cause, err)
		}
		mustClose(t, e)
	}
}

// A commit that is in the journal only belongs to the backup.
func TestABackupHasTheLatestLocalCommit(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf})
	defer mustClose(t, e)
	for n := range 3 {
		mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprint("k", n)}) })
		to := fmt.Sprint("backup", n)
		if err := e.Backup(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		copied := mustOpen(t, pebble.Options{Dir: to, FS: disk, Logf: t.Logf})
		mustUpdate(t, copied, func(tx engine.Tx) {
			if _, ok := tx.Get(fmt.Sprint("k", n)); !ok {
				t.Errorf("commit %d is missing", n)
			}
		})
		mustClose(t, copied)
	}
}

// A state that nobody has open is backed up with what its journal has.
func TestAStateThatNobodyHasOpenIsBackedUp(t *testing.T) {
	h, _ := lived(t, true)
	disk := h.disk(t)
	if err := pebble.Backup(t.Context(), pebble.Options{Dir: "state", FS: disk, Logf: t.Logf}, "backup"); err != nil {
		t.Fatal(err)
	}
	read := func(dir string) (rows []engine.Row) {
		e := mustOpen(t, pebble.Options{Dir: dir, FS: disk, Logf: t.Logf})
		defer mustClose(t, e)
		mustUpdate(t, e, func(tx engine.Tx) {
			for row := range tx.Scan("") {
				rows = append(rows, row)
			}
		})
		return rows
	}
	if was, is := read("state"), read("backup"); len(was) == 0 || fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("the backup has %d rows, and the state %d", len(is), len(was))
	}
	open := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	defer mustClose(t, open)
	if err := pebble.Backup(t.Context(), pebble.Options{Dir: "state", FS: disk}, "other"); !errors.Is(err, engine.ErrLocked) {
		t.Errorf("a state that somebody has open: %v", err)
	}
}

// TestAStateThatWasCopiedIsNotedAsACopy copies a state file by file, as cp and
// rsync do, also over the files of the original, and moves it.
func TestAStateThatWasCopiedIsNotedAsACopy(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("whether a file is a copy is known on Linux only")
	}
	root := t.TempDir()
	original, kept := filepath.Join(root, "original"), filepath.Join(root, "kept")
	var last time.Time
	write := func(dir string, examine bool) (noted bool) {
		t.Helper()
		e := mustOpen(t, pebble.Options{Dir: dir, Logf: func(format string, args ...any) { t.Errorf(format, args...) }})
		defer mustClose(t, e)
		mustUpdate(t, e, func(tx engine.Tx) {
			var row engine.Row
			row, noted = tx.Get(engine.CopyKey)
			if noted && row.Value > engine.CopyRow(last).Value {
				t.Errorf("the copy was noted with a time after that of the copy, %v", last)
			}
			if !examine {
				tx.Delete(engine.CopyKey)
				tx.Put(engine.Row{Key: "a"})
			}
		})
		return noted
	}
	for range 2 {
		if write(original, false) {
			t.Error("a state that was not copied is noted as a copy")
		}
	}
	last = time.Now()
	if err := os.CopyFS(kept, os.DirFS(original)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // whoever only reads it does not take the note away
		if !write(kept, true) {
			t.Error("a copy is not noted")
		}
	}
	write(kept, false)
	if write(kept, false) {
		t.Error("a copy whose note was removed has it again")
	}
	moved := filepath.Join(root, "moved")
	if err := os.Rename(original, moved); err != nil {
		t.Fatal(err)
	}
	marks, err := os.ReadFile(filepath.Join(moved, "marks"))
	if err != nil {
		t.Fatal(err)
	}
	if write(moved, false) {
		t.Error("a state that was moved is noted as a copy")
	}
	last = time.Now()
	if err := os.WriteFile(filepath.Join(moved, "marks"), marks, 0o600); err != nil { // the file stays, its content does not
		t.Fatal(err)
	}
	if !write(moved, false) {
		t.Error("a copy over the original is not noted")
	}
}
