//go:build linux

package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// noRoom fails every write for want of room.
type noRoom struct{ on atomic.Bool }

func (n *noRoom) String() string { return "no room" }

func (n *noRoom) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFilePreallocate, errorfs.OpCreate:
		if n.on.Load() {
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
	}
	return nil
}

// TestAStartOnAFullDiskEndsWithTheCause opens a new state, one that was closed,
// and one whose daemon was killed, on a disk without room.
func TestAStartOnAFullDiskEndsWithTheCause(t *testing.T) {
	killed, _ := lived(t, true)
	closed, _ := lived(t, false)
	for name, disk := range map[string]vfs.FS{"new": vfs.NewMem(), "killed": killed.disk(t), "closed": closed.disk(t)} {
		full := new(noRoom)
		full.on.Store(true)
		ended := make(chan error, 1)
		go func() {
			e, err := pebble.Open(pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, full)})
			if err == nil {
				err = errors.Join(errors.New("it was opened"), e.Close())
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(3 * time.Minute):
			t.Fatalf("%s: Open does not return", name)
		}
		mustClose(t, mustOpen(t, pebble.Options{Dir: "state", FS: disk})) // and there is room again
	}
}

// A meter is a disk that says how much room it has.
type meter struct {
	vfs.FS
	room atomic.Uint64
}

func (m *meter) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: m.room.Load(), TotalBytes: 1 << 40}, nil
}

// Remove makes room where the file is the reserve.
func (m *meter) Remove(name string) error {
	err := m.FS.Remove(name)
	if err == nil && path.Base(name) == "reserve" {
		m.room.Add(16 << 20)
	}
	return err
}

// TestTheReserveOfAKilledDaemonIsRoomToStart the next one on a full disk.
func TestTheReserveOfAKilledDaemonIsRoomToStart(t *testing.T) {
	killed, _ := lived(t, true)
	killed["reserve"] = nil
	disk := &meter{FS: killed.disk(t)}
	mustClose(t, mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf}))
}

// A tight disk has no room while it has the reserve.
type tight struct {
	noRoom
	disk *meter
}

func (f *tight) MaybeError(op errorfs.Op) error {
	if f.disk.reserve() {
		return f.noRoom.MaybeError(op)
	}
	return nil
}

// reserve reports whether there is a reserve on the disk.
func (m *meter) reserve() bool {
	_, err := m.Stat("state/reserve")
	return err == nil
}

// TestAStoreWithoutCommitsKeepsAReserve: from the start on, however full the disk
// is, and again when there is room after the reserve was used. Otherwise the next
// commit could find a disk that has filled since.
func TestAStoreWithoutCommitsKeepsAReserve(t *testing.T) {
	for name, left := range map[string]uint64{"plenty": 1 << 30, "full": 20 << 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &meter{FS: vfs.NewMem()}
				disk.room.Store(left)
				tight := &tight{disk: disk}
				e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, tight), Logf: t.Logf})
				defer mustClose(t, e)
				if !disk.reserve() {
					t.Fatal("there is no reserve after the start")
				}
				tight.on.Store(true)
				disk.room.Store(0)
				mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "k", Value: "v"}) })
				if disk.reserve() {
					t.Fatal("a commit on a full disk did not use the reserve")
				}
				time.Sleep(time.Minute)
				if disk.reserve() {
					t.Error("there is a reserve again while the disk is full")
				}
				tight.on.Store(false)
				disk.room.Store(1 << 30)
				time.Sleep(2 * time.Second)
				if !disk.reserve() {
					t.Error("there is no reserve though the disk has had room")
				}
			})
		})
	}
}

// A quota leaves no room while there is the reserve, whatever the disk says.
type quota struct{ tight }

func (q *quota) MaybeError(op errorfs.Op) error {
	if err := q.tight.MaybeError(op); err == nil && (op.Kind != errorfs.OpFilePreallocate || !q.on.Load()) {
		return nil
	}
	return &os.PathError{Op: "write", Path: op.Path, Err: syscall.EDQUOT}
}

// TestAQuotaThatIsUsedUpIsAFullDisk although the disk has room.
func TestAQuotaThatIsUsedUpIsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &meter{FS: vfs.NewMem()}
		disk.room.Store(1 << 30)
		quota := &quota{tight{disk: disk}}
		e := mustOpen(t, pebble.Options{Dir: "state", FS: errorfs.Wrap(disk, quota), Logf: t.Logf})
		defer mustClose(t, e)
		put := func(value string) error {
			return e.Update(t.Context(), func(tx engine.Tx) error { tx.Put(engine.Row{Key: "k", Value: value}); return nil })
		}
		large := strings.Repeat("x", 10<<10)
		quota.on.Store(true)
		if err := put("small"); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if err := put(large); !errors.Is(err, engine.ErrFull) {
				t.Fatalf("a row that grows: %v", err)
			}
			if err := put("other"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		quota.on.Store(false)
		time.Sleep(2 * time.Second)
		if err := put(large); err != nil || !disk.reserve() {
			t.Errorf("when there is room: %v, reserve %t", err, disk.reserve())
		}
	})
}

// TestAFullDiskRefusesWhatGrows and nothing else, until there is room again.
func TestAFullDiskRefusesWhatGrows(t *testing.T) {
	disk := &meter{FS: vfs.NewMem()}
	disk.room.Store(1 << 30)
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf})
	large := strings.Repeat("x", 10<<10)
	put := func(key string) error {
		return e.Update(t.Context(), func(tx engine.Tx) error { tx.Put(engine.Row{Key: key, Value: large}); return nil })
	}
	for _, key := range []string{"hot", "~cold", "old"} {
		if err := put(key); err != nil {
			t.Fatal(err)
		}
	}
	change := func(room uint64, want error) {
		t.Helper()
		disk.room.Store(room)
		for end := time.Now().Add(time.Minute); ; {
			err := put("~cold")
			if errors.Is(err, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("with %d bytes of room: %v", room, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	change(1<<20, engine.ErrFull)
	if err := put("another"); !errors.Is(err, engine.ErrFull) {
		t.Errorf("a row that grows: %v", err)
	}
	mustUpdate(t, e, func(tx engine.Tx) {
		if _, ok := tx.Get("another"); ok {
			t.Error("what was refused is there")
		}
		tx.Put(engine.Row{Key: "lease", Value: "small"})
		tx.Touch(engine.Row{Key: "hot", Value: large, Due: tx.Now().Add(time.Hour)})
	})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("old"); tx.Put(engine.Row{Key: "moved", Value: large}) })
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("~cold"); tx.Delete("lease") })
	change(1<<30, nil)
	mustClose(t, e)
}

// TestManySmallWritesOnAFullDiskEnd: each is small enough to succeed, and together
// they would take the reserve. What is given back can be taken again, and what must
// happen does.
func TestManySmallWritesOnAFullDiskEnd(t *testing.T) {
	disk := &meter{FS: vfs.NewMem()}
	disk.room.Store(1 << 20)
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf})
	put := func(ctx context.Context, n int) error {
		return e.Update(ctx, func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: fmt.Sprint("small/", n), Value: strings.Repeat("x", 1000)})
			return nil
		})
	}
	n := 0
	for ; n < 10_000; n++ {
		if err := put(t.Context(), n); errors.Is(err, engine.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n < 100 || n == 10_000 {
		t.Fatalf("%d writes of a kilobyte were not refused", n)
	}
	if err := put(engine.Needed(t.Context()), n); err != nil {
		t.Errorf("what must happen: %v", err)
	}
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("small/0"); tx.Put(engine.Row{Key: "moved", Value: "x"}) })
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("small/1"); tx.Delete("small/2"); tx.Delete("small/3") })
	if err := put(t.Context(), n+1); err != nil {
		t.Errorf("in the place of what was deleted: %v", err)
	}
	mustClose(t, e)
}

// smallDisk returns the directory of a new tmpfs, or skips the test.
func smallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a tmpfs cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// TestAFullTmpfs fills a real file system while a state on it is in use.
func TestAFullTmpfs(t *testing.T) {
	dir := smallDisk(t, "192m")
	e := mustOpen(t, pebble.Options{Dir: dir + "/state", Logf: t.Logf})
	value := strings.Repeat("v", 256<<10)
	n := 0
	for ; n < 2000; n++ {
		err := e.Update(t.Context(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: fmt.Sprintf("~%d", n), Value: value})
			tx.Put(engine.Row{Key: fmt.Sprintf("lease/%d", n), Value: "held"})
			return nil
		})
		if errors.Is(err, engine.ErrFull) {
			break
		}
		if err != nil {
			t.Fatalf("update %d: %v", n, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if n == 2000 || n == 0 {
		t.Fatalf("%d updates were not refused", n)
	}
	for i := range n {
		mustUpdate(t, e, func(tx engine.Tx) { tx.Delete(fmt.Sprintf("lease/%d", i)) })
	}
	mustClose(t, e)
}

// TestTheFirstCommitAfterAPauseFindsThatTheDiskIsFull: other programs may have filled it.
func TestTheFirstCommitAfterAPauseFindsThatTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &meter{FS: vfs.NewMem()}
		disk.room.Store(1 << 30)
		e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf})
		defer mustClose(t, e)
		put := func(key string) error {
			return e.Update(t.Context(), func(tx engine.Tx) error {
				tx.Put(engine.Row{Key: key, Value: strings.Repeat("x", 10<<10)})
				return nil
			})
		}
		if err := put("before"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		disk.room.Store(1 << 20)
		if err := put("after"); !errors.Is(err, engine.ErrFull) {
			t.Errorf("a row that grows: %v", err)
		}
	})
}

// TestASmallTmpfs fills a small file system under an open state, then calls until the
// state grows no more: the last commits find the space that releases need.
func TestASmallTmpfs(t *testing.T) {
	dir := smallDisk(t, "4m")
	e := mustOpen(t, pebble.Options{Dir: dir + "/state", Logf: t.Logf})
	defer mustClose(t, e)
	if err := os.WriteFile(dir+"/others", make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	value := strings.Repeat("v", 1000)
	n := 0
	for ; n < 4000; n++ {
		err := e.Update(t.Context(), func(tx engine.Tx) error {
			tx.Put(engine.Row{Key: fmt.Sprint("row/", n), Value: value})
			return nil
		})
		if errors.Is(err, engine.ErrFull) {
			break
		}
		if err != nil {
			t.Fatalf("update %d: %v", n, err)
		}
	}
	if n == 4000 || n == 0 {
		t.Fatalf("%d updates were not refused", n)
	}
	for i := range n {
		mustUpdate(t, e, func(tx engine.Tx) { tx.Delete(fmt.Sprint("row/", i)) })
	}
}

// TestALogTakesNoMoreThanItIsAboutToNeed, so that a small disk is not full from the
// start.
func TestALogTakesNoMoreThanItIsAboutToNeed(t *testing.T) {
	dir := t.TempDir()
	e := mustOpen(t, pebble.Options{Dir: dir, Logf: t.Logf})
	defer mustClose(t, e)
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "k", Value: "v"}) })
	logs, err := filepath.Glob(dir + "/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs: %q, %v", logs, err)
	}
	for _, log := range logs {
		var info syscall.Stat_t
		if err := syscall.Stat(log, &info); err != nil {
			t.Fatal(err)
		}
		if size := info.Blocks * 512; size > 9<<20 {
			t.Errorf("%s takes %d MiB of the disk", log, size>>20)
		}
	}
}

// A greedy disk is one that another program fills: whatever is free before or after an
// operation is taken.
type greedy struct {
	vfs.FS
	on    atomic.Bool
	other *os.File
	still sync.RWMutex // locked while nothing may change
}

// change begins a change of the disk, and returns what ends it.
func (g *greedy) change() (end func()) {
	g.still.RLock()
	g.fill()
	return func() {
		g.fill()
		g.still.RUnlock()
	}
}

func (g *greedy) fill() {
	for size := 64 << 10; g.on.Load() && size >= 4<<10; {
		if _, err := g.other.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

func (g *greedy) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return greedyFile{f, g}, nil
}

func (g *greedy) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	defer g.change()()
	return g.wrap(g.FS.Create(name, category))
}

func (g *greedy) OpenReadWrite(name string, category vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	defer g.change()()
	return g.wrap(g.FS.OpenReadWrite(name, category, o...))
}

func (g *greedy) Remove(name string) error {
	defer g.change()()
	return g.FS.Remove(name)
}

func (g *greedy) Rename(from, to string) error {
	defer g.change()()
	return g.FS.Rename(from, to)
}

type greedyFile struct {
	vfs.File
	g *greedy
}

func (f greedyFile) Write(p []byte) (int, error) {
	defer f.g.change()()
	return f.File.Write(p)
}

func (f greedyFile) Close() error {
	defer f.g.change()()
	return f.File.Close()
}

// TestAProgramThatKeepsFillingTheDisk takes what the store gives back, and what its
// reserve gives up for others than the file that needs it. A store that is killed
// meanwhile has lost nothing.
func TestAProgramThatKeepsFillingTheDisk(t *testing.T) {
	dir := smallDisk(t, "192m")
	other, err := os.Create(dir + "/others")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	disk := &greedy{FS: vfs.Default, other: other}
	e := mustOpen(t, pebble.Options{Dir: dir + "/state", FS: disk, Logf: t.Logf})
	disk.on.Store(true)
	disk.fill()
	value := strings.Repeat("v", 200)
	const commits, held = 15_000, 50
	for n := range commits {
		mustUpdate(t, e, func(tx engine.Tx) {
			tx.Put(engine.Row{Key: fmt.Sprint("lease/", n), Value: value})
			if n >= held {
				tx.Delete(fmt.Sprint("lease/", n-held))
			}
			if n%1000 == 0 {
				tx.Put(engine.Row{Key: engine.Mark + "token", Value: fmt.Sprintf("%08d", n)})
			}
		})
	}
	if !pebble.Spent(dir + "/state") {
		t.Error("the disk counts as one with room")
	}
	t.Logf("%d MiB in logs", e.Metrics().WAL.BytesWritten>>20)
	killed := t.TempDir()
	disk.still.Lock() // tables are made and removed in the background
	err = os.CopyFS(killed, os.DirFS(dir+"/state"))
	disk.still.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	after := mustOpen(t, pebble.Options{Dir: killed, Logf: t.Logf})
	mustUpdate(t, after, func(tx engine.Tx) {
		for n := commits - held - 1; n < commits; n++ {
			if _, ok := tx.Get(fmt.Sprint("lease/", n)); ok != (n >= commits-held) {
				t.Errorf("lease %d is there: %t", n, ok)
			}
		}
	})
	mustClose(t, after)
	disk.on.Store(false)
	if err := os.Remove(dir + "/others"); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	for pebble.Spent(dir + "/state") {
		time.Sleep(10 * time.Millisecond)
	}
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "large", Value: strings.Repeat("x", 10<<10)}) })
	mustClose(t, e)
}

// A cutter is a disk whose power is cut at each change of a name, in a copy.
type cutter struct {
	*meter
	mem  *vfs.MemFS
	on   atomic.Bool
	done atomic.Int64 // commits that were answered

	mu     sync.Mutex
	cuts   []cut
	reused int // logs
}

type cut struct {
	done int64
	disk *vfs.MemFS
}

func (c *cutter) cut() {
	if !c.on.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kept := range []int{0, 50, 100} {
		done := c.done.Load()
		rng := rand.New(rand.NewPCG(1, uint64(len(c.cuts))))
		c.cuts = append(c.cuts, cut{done, c.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})})
	}
}

func (c *cutter) Rename(from, to string) error {
	c.cut()
	defer c.cut()
	if strings.HasSuffix(to, ".log") {
		c.mu.Lock()
		c.reused++
		c.mu.Unlock()
	}
	return c.meter.Rename(from, to)
}

func (c *cutter) Remove(name string) error {
	defer c.cut()
	return c.meter.Remove(name)
}

func (c *cutter) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	defer c.cut()
	return c.meter.Create(name, category)
}

// TestALogThatIsUsedAgainSurvivesAPowerCut at each step.
func TestALogThatIsUsedAgainSurvivesAPowerCut(t *testing.T) {
	mem := vfs.NewCrashableMem()
	disk := &cutter{meter: &meter{FS: mem}, mem: mem}
	disk.room.Store(10 << 20)
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk, Logf: t.Logf})
	disk.on.Store(true)
	for n := range int64(20) {
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprintf("%03d", n), Value: "v"}) })
		disk.done.Store(n + 1)
		if n%2 == 1 {
			if err := e.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustClose(t, e)
	if disk.reused == 0 {
		t.Fatal("no log was used again")
	}
	for i, c := range disk.cuts {
		var said []string
		e := mustOpen(t, pebble.Options{Dir: "state", FS: c.disk, Logf: func(format string, args ...any) {
			said = append(said, fmt.Sprintf(format, args...))
		}})
		mustUpdate(t, e, func(tx engine.Tx) {
			for n := range c.done {
				if _, ok := tx.Get(fmt.Sprintf("%03d", n)); !ok {
					t.Errorf("cut %d: commit %d of %d is lost", i, n, c.done)
				}
			}
		})
		mustClose(t, e)
		if len(said) > 0 {
			t.Errorf("cut %d: %q", i, said)
		}
	}
}
