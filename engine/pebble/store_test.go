package pebble_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

func mustOpen(t testing.TB, o pebble.Options) *pebble.Engine {
	t.Helper()
	e, err := pebble.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func mustClose(t testing.TB, e *pebble.Engine) {
	t.Helper()
	if err := e.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func mustUpdate(t testing.TB, e *pebble.Engine, fn func(tx engine.Tx)) {
	t.Helper()
	if err := e.Update(t.Context(), func(tx engine.Tx) error { fn(tx); return nil }); err != nil {
		t.Fatalf("update: %v", err)
	}
}

func TestASecondOpenIsToldWhoHasTheState(t *testing.T) {
	for name, o := range map[string]pebble.Options{
		"disk":   {Dir: filepath.Join(t.TempDir(), "a", "state")},
		"memory": {Dir: "state", FS: vfs.NewMem()},
	} {
		t.Run(name, func(t *testing.T) {
			e := mustOpen(t, o)
			_, err := pebble.Open(o)
			if !errors.Is(err, engine.ErrLocked) {
				t.Fatalf("second open: %v", err)
			}
			for _, part := range []string{o.Dir, fmt.Sprintf("pid %d", os.Getpid())} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "k"}) }) // it does no harm
			mustClose(t, e)
			mustClose(t, mustOpen(t, o))
		})
	}
}

func TestFilesAreForTheirOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e := mustOpen(t, pebble.Options{Dir: dir})
	value := strings.Repeat("v", 1<<20)
	mustUpdate(t, e, func(tx engine.Tx) {
		for i := range 10 { // more than a memtable holds
			tx.Put(engine.Row{Key: fmt.Sprint(i), Value: value})
		}
	})
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone since it was listed
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	mustClose(t, e)
}

// meddle changes what a closed state has stored, past the engine.
func meddle(t *testing.T, disk vfs.FS, key, value string) {
	t.Helper()
	db, err := pebbledb.Open("state", &pebbledb.Options{FS: disk, FormatMajorVersion: pebbledb.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte(key), []byte(value), pebbledb.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
	// A bare Pebble removes a log and leaves the mark that the log must be there.
	for name := range filesOf(t, disk) {
		if strings.HasSuffix(name, ".live") {
			if err := disk.Remove("state/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)              {}
func (quiet) Errorf(string, ...any)             {}
func (quiet) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestACorruptRecordIsNamed(t *testing.T) {
	for name, record := range map[string]string{
		"empty":           "",
		"unknown version": "\x20value",
		"unknown flag":    "\x14value",
		"half an owner":   "\x11short",
		"nobody":          "\x11" + strings.Repeat("\x00", 16),
		"half a due time": "\x12short",
		"due never":       "\x12\x7f" + strings.Repeat("\xff", 7),
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
			mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "a", Value: "1"}) })
			mustClose(t, e)
			meddle(t, disk, "\x01lease/\xff/k", record)
			for range 2 { // and it does not keep the state locked
				_, err := pebble.Open(pebble.Options{Dir: "state", FS: disk})
				if !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), `"lease/\xff/k"`) {
					t.Fatalf("open: %v", err)
				}
			}
		})
	}
}

// TestACorruptColdRecordIsNamedWhenItIsRead: Open does not see it, and what
// does not read it goes on.
func TestACorruptColdRecordIsNamedWhenItIsRead(t *testing.T) {
	for name, record := range map[string]string{
		"empty":           "",
		"unknown version": "\x20value",
		"an owner":        "\x11" + strings.Repeat("o", 16) + "value",
		"a due time":      "\x12" + strings.Repeat("d", 8) + "value",
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfs.NewMem()
			e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
			mustUpdate(t, e, func(tx engine.Tx) {
				tx.Put(engine.Row{Key: "~a"})
				tx.Put(engine.Row{Key: "~task/z"})
				tx.Put(engine.Row{Key: "~task/\xff/l"})
			})
			mustClose(t, e)
			meddle(t, disk, "\x02~task/\xff/k", record)
			e = mustOpen(t, pebble.Options{Dir: "state", FS: disk})
			corrupt := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), `"~task/\xff/k"`) {
					t.Errorf("%s: %v", what, err)
				}
			}
			read := func(tx engine.Tx) { tx.Get("~task/\xff/k") }
			scan := func(tx engine.Tx) {
				n := 0
				for range tx.Scan("~task/") {
					n++
				}
				if n != 2 {
					t.Errorf("%d rows around it", n)
				}
			}
			for range 2 {
				corrupt("view", e.View(t.Context(), func(tx engine.Tx) error { read(tx); return nil }))
				corrupt("update", e.Update(t.Context(), func(tx engine.Tx) error { tx.Put(engine.Row{Key: "~b"}); read(tx); return nil }))
				mustUpdate(t, e, scan)
				_, _, err := e.Get(t.Context(), "~task/\xff/k")
				corrupt("get", err)
				corrupt("check", e.Check())
			}
			mustUpdate(t, e, func(tx engine.Tx) {
				if _, ok := tx.Get("~b"); ok {
					t.Error("a transaction that failed has written")
				}
				tx.Delete("~task/\xff/k") // which is a way out
			})
			mustUpdate(t, e, scan)
			mustClose(t, e)
		})
	}
}

// TestColdRowsAreNotKept counts what is in memory with any number of them.
func TestColdRowsAreNotKept(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	const rows, each = 20_000, 100
	most := 0
	for i := 0; i < rows; i += each {
		mustUpdate(t, e, func(tx engine.Tx) {
			for j := range each {
				tx.Put(engine.Row{Key: fmt.Sprintf("~%06d", i+j), Value: "v"})
			}
		})
		most = max(most, inMemory(t, e))
	}
	if most > 2*each {
		t.Errorf("%d rows were in memory at once", most)
	}
	mustUpdate(t, e, func(engine.Tx) {})
	if n := inMemory(t, e); n != 0 {
		t.Errorf("%d rows are in memory", n)
	}
	mustClose(t, e)
	e = mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	n := 0
	mustUpdate(t, e, func(tx engine.Tx) {
		for range tx.Scan("~") {
			n++
		}
	})
	if kept := inMemory(t, e); kept != 0 || n != rows {
		t.Errorf("%d rows are in memory, of %d", kept, n)
	}
	mustClose(t, e)
}

// inMemory counts the rows that are not cold.
func inMemory(t *testing.T, e *pebble.Engine) (n int) {
	t.Helper()
	mustUpdate(t, e, func(tx engine.Tx) {
		for range tx.Scan("") {
			n++
		}
	})
	return n
}

// TestGetDoesNotOutliveClose: Close waits for those who read.
func TestGetDoesNotOutliveClose(t *testing.T) {
	for range 20 {
		e := mustOpen(t, pebble.Options{Dir: "state", FS: vfs.NewMem()})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "~k", Value: "v"}) })
		mustUpdate(t, e, func(engine.Tx) {})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					r, ok, err := e.Get(t.Context(), "~k")
					if errors.Is(err, engine.ErrClosed) {
						return
					}
					if !ok || r.Value != "v" || err != nil {
						t.Errorf("get: %v, %t, %v", r, ok, err)
						return
					}
				}
			})
		}
		runtime.Gosched()
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		wg.Wait()
	}
}

func TestALaterFormatIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	mustClose(t, mustOpen(t, pebble.Options{Dir: "state", FS: disk}))
	meddle(t, disk, "\x00format", "\x63")
	_, err := pebble.Open(pebble.Options{Dir: "state", FS: disk})
	if err == nil || !strings.Contains(err.Error(), "format 99") {
		t.Fatalf("open: %v", err)
	}
}

func TestOnlyDurableWritesAreWritten(t *testing.T) {
	e := mustOpen(t, pebble.Options{Dir: t.TempDir()})
	defer mustClose(t, e)
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "put"}) })
	before := e.Metrics().WAL
	for i := range 1000 {
		mustUpdate(t, e, func(tx engine.Tx) {
			tx.Touch(engine.Row{Key: "put", Due: tx.Now().Add(time.Minute)})
			tx.Touch(engine.Row{Key: fmt.Sprint("touched ", i)})
		})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Delete(fmt.Sprint("touched ", i)) })
		mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("missing") })
	}
	if after := e.Metrics().WAL; after.BytesIn != before.BytesIn || after.BytesWritten != before.BytesWritten {
		t.Errorf("the log took %d bytes, and %d were written", after.BytesIn-before.BytesIn, after.BytesWritten-before.BytesWritten)
	}
	mustUpdate(t, e, func(tx engine.Tx) { tx.Delete("put") })
	if after := e.Metrics().WAL; after.BytesIn == before.BytesIn {
		t.Error("a durable write was not noticed, so nothing here is proven")
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	// A bubble does not end, and fails, while a goroutine in it lives.
	synctest.Test(t, func(t *testing.T) {
		e := mustOpen(t, pebble.Options{Dir: "state", FS: vfs.NewMem()})
		value := strings.Repeat("v", 1<<20)
		for i := range 20 {
			mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprint(i), Value: value}) })
		}
		time.Sleep(time.Hour) // time passes, so all in there can sleep
		mustClose(t, e)
	})
	e := mustOpen(t, pebble.Options{Dir: t.TempDir()})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "k"}) })
	mustClose(t, e)
	// Pebble's goroutines have been told to end, and may need a while for it.
	for patience := time.After(time.Minute); runtime.NumGoroutine() > before; {
		select {
		case <-patience:
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, and %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		case <-time.After(time.Millisecond):
		}
	}
}

// TestAStateThatReplacesAnOpenOneIsLeftAlone puts another state in the place of
// one that is open. Its files may be open in another process.
func TestAStateThatReplacesAnOpenOneIsLeftAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	const dir, other = "state", "other"
	for _, told := range []bool{true, false} { // false: it is closed before anybody has looked
		e := mustOpen(t, pebble.Options{Dir: dir, Logf: t.Logf})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: engine.Mark + "m", Value: "1"}) })
		if err := e.CheckPlace(); err != nil {
			t.Fatal(err)
		}
		err := os.CopyFS(other, os.DirFS(dir))
		for errors.Is(err, fs.ErrNotExist) { // Pebble still removes what it no longer needs
			err = errors.Join(os.RemoveAll(other), os.CopyFS(other, os.DirFS(dir)))
		}
		if err := errors.Join(err, os.Rename(dir, fmt.Sprint("old", told)), os.Rename(other, dir)); err != nil {
			t.Fatal(err)
		}
		before := filesOf(t, vfs.Default)
		if told {
			if err := e.CheckPlace(); !errors.Is(err, pebble.ErrReplaced) {
				t.Errorf("a state that was replaced: %v", err)
			}
			if err := e.Update(t.Context(), func(tx engine.Tx) error { tx.Put(engine.Row{Key: "a"}); return nil }); !errors.Is(err, engine.ErrFailed) {
				t.Errorf("an update of a state that was replaced: %v", err)
			}
		}
		_ = e.Close()
		if after := filesOf(t, vfs.Default); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("closing the state that was replaced (told %t) changed the other one", told)
		}
	}
}
