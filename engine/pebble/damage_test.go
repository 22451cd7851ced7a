package pebble_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// files are the contents of a state's directory, by name.
type files map[string][]byte

func filesOf(t *testing.T, disk vfs.FS) files {
	t.Helper()
	for was := someFilesOf(t, disk); ; { // until no compaction has come between
		is := someFilesOf(t, disk)
		if maps.EqualFunc(was, is, bytes.Equal) {
			return is
		}
		was = is
	}
}

func someFilesOf(t *testing.T, disk vfs.FS) files {
	t.Helper()
	names, err := disk.List("state")
	if err != nil {
		t.Fatal(err)
	}
	all := make(files)
	for _, name := range names {
		f, err := disk.Open(path.Join("state", name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = io.ReadAll(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	return all
}

// disk makes a file system that has the files.
func (f files) disk(t *testing.T) vfs.FS {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("state", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range f {
		file, err := disk.Create(path.Join("state", name), vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = file.Write(slices.Clone(content)) // with -race, Pebble's file may spoil what it was given
		}
		if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// found is what an open of damaged files has come to.
type found struct {
	refused error
	said    []string
	rows    string
}

// open20 opens damaged files. If they are refused, whatever starts the daemon may try
// again. Then they must be refused too, or be called corrupt at the latest when all is
// read: a table's block is found by a compaction, which may come before Open ends or after.
func open20(t *testing.T, f files) (is found) {
	t.Helper()
	disk := f.disk(t)
	var mu sync.Mutex
	e, err := pebble.Open(pebble.Options{Dir: "state", FS: disk, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		is.said = append(is.said, fmt.Sprintf(format, args...))
	}})
	if err != nil {
		if e, again := pebble.Open(pebble.Options{Dir: "state", FS: disk}); again == nil {
			if is := e.Check(); !errors.Is(is, engine.ErrCorrupt) {
				t.Errorf("refused (%v), and whole at the next start (%v)", err, is)
			}
			_ = e.Close()
		}
		return found{refused: err, said: is.said}
	}
	is.rows, err = contentsOf(t, e)
	if err != nil {
		is.refused = err
	}
	_ = e.Close()
	return is
}

// contentsOf does not wait for the disk, so what is only in the journal stays there.
func contentsOf(t *testing.T, e *pebble.Engine) (string, error) {
	var b strings.Builder
	err := e.View(engine.Local(t.Context()), func(tx engine.Tx) error {
		for _, prefix := range []string{"", engine.Cold} {
			for r := range tx.Scan(prefix) {
				fmt.Fprintf(&b, "%q %q %v %v\n", r.Key, r.Value, r.Owner, r.Due)
			}
		}
		return nil
	})
	return b.String(), err
}

// lived makes a state that has tables, logs and marks, and gives its files, of a
// daemon that was killed or one that was closed.
func lived(t *testing.T, killed bool) (f files, rows string) {
	t.Helper()
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	put := func(from, to int) {
		for i := from; i < to; i++ {
			mustUpdate(t, e, func(tx engine.Tx) {
				tx.Put(engine.Row{Key: fmt.Sprintf("hot/%04d", i), Value: strings.Repeat(fmt.Sprint(i), 20)})
				tx.Put(engine.Row{Key: fmt.Sprintf("~cold/%04d", i), Value: strings.Repeat(fmt.Sprint(i), 50)})
				tx.Put(engine.Row{Key: engine.Mark + "token", Value: fmt.Sprintf("%08d", i)})
			})
		}
	}
	put(0, 100)
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	put(50, 250)
	for i := range 20 { // these are in the journal
		mustUpdateLocally(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprintf("local/%04d", i), Value: "x"}) })
	}
	rows, err := contentsOf(t, e)
	if err != nil {
		t.Fatal(err)
	}
	if killed {
		f = filesOf(t, disk)
	}
	mustClose(t, e)
	if !killed {
		f = filesOf(t, disk)
	}
	return f, rows
}

// TestAFlippedByteIsNeverSilent flips a byte at 20 places of each file of a
// state: it is not opened or read, or something is said, or nothing is different.
func TestAFlippedByteIsNeverSilent(t *testing.T) {
	for _, killed := range []bool{true, false} {
		whole, rows := lived(t, killed)
		if is := open20(t, whole); is.refused != nil || len(is.said) != 0 || is.rows != rows {
			t.Fatalf("killed %t: an undamaged state: %v, %q", killed, is.refused, is.said)
		}
		for name, content := range whole {
			if len(content) == 0 {
				continue
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 0))
			for n := range 20 {
				at := r.IntN(len(content))
				if n < 4 { // the ends are where it is hardest
					at = []int{0, len(content) - 1, min(7, len(content)-1), max(0, len(content)-12)}[n]
				}
				damaged := slices.Clone(content)
				damaged[at] ^= byte(1 + r.IntN(255))
				all := make(files)
				maps.Copy(all, whole)
				all[name] = damaged
				is := open20(t, all)
				if is.refused == nil && len(is.said) == 0 && is.rows != rows {
					t.Errorf("killed %t: byte %d of %d of %s was flipped, and nobody says so (seed %d)", killed, at, len(content), name, seed)
				}
			}
		}
	}
}

// TestAFileRemovedIsNeverSilent removes each file of a state with several logs
// whose latest commits change no mark, and of one with tables.
func TestAFileRemovedIsNeverSilent(t *testing.T) {
	for _, killed := range []bool{true, false} {
		disk := vfs.NewMem()
		e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: engine.Mark + "token", Value: "1"}) })
		for i := range 2000 { // a log has 256 KiB at first
			mustUpdate(t, e, func(tx engine.Tx) {
				tx.Put(engine.Row{Key: fmt.Sprintf("hot/%04d", i), Value: strings.Repeat(fmt.Sprint(i), 200)})
			})
		}
		rows, err := contentsOf(t, e)
		if err != nil {
			t.Fatal(err)
		}
		whole := filesOf(t, disk)
		mustClose(t, e)
		if !killed {
			whole = filesOf(t, disk)
		}
		if _, ok := whole["000005.log"]; !ok {
			t.Fatalf("there is one log: %q", slices.Sorted(maps.Keys(whole)))
		}
		removeEach(t, whole, rows, fmt.Sprintf("several logs, killed %t", killed))

		// Closed and opened again, its first rows are in tables only.
		before, _ := lived(t, false)
		reopened := before.disk(t)
		e = mustOpen(t, pebble.Options{Dir: "state", FS: reopened})
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: engine.Mark + "token", Value: "00001000"}) })
		if rows, err = contentsOf(t, e); err != nil {
			t.Fatal(err)
		}
		whole = filesOf(t, reopened)
		mustClose(t, e)
		if !killed {
			whole = filesOf(t, reopened)
		}
		removeEach(t, whole, rows, fmt.Sprintf("tables, killed %t", killed))
	}
}

func removeEach(t *testing.T, whole files, rows, what string) {
	t.Helper()
	for name := range whole {
		left := maps.Clone(whole)
		delete(left, name)
		if is := open20(t, left); is.refused == nil && len(is.said) == 0 && is.rows != rows {
			t.Errorf("%s: %s was removed, and nobody says so", what, name)
		}
	}
}

// TestDamageOfTablesIsCalledSo: a table, a manifest or a marker that is missing, or was cut
// or changed, makes the state corrupt. Each of the words about it is a line, without a trace.
func TestDamageOfTablesIsCalledSo(t *testing.T) {
	whole, _ := lived(t, false)
	tables := 0
	for name, content := range whole {
		table := strings.HasSuffix(name, ".sst")
		if !table && !strings.HasPrefix(name, "MANIFEST") && !strings.HasPrefix(name, "marker.") {
			continue
		}
		damage := map[string][]byte{"missing": nil}
		if table {
			tables++
			changed := slices.Clone(content)
			for i := range len(changed) / 2 {
				changed[i] ^= 1
			}
			damage["cut"], damage["changed"] = content[:len(content)/2], changed
		} else if strings.HasPrefix(name, "MANIFEST") {
			if !strings.HasSuffix(markerOf(whole), name) {
				continue // an earlier one, which nobody reads
			}
		}
		for what, content := range damage {
			all := maps.Clone(whole)
			all[name] = content
			if content == nil {
				delete(all, name)
			}
			is := open20(t, all)
			if !errors.Is(is.refused, engine.ErrCorrupt) || strings.Contains(is.refused.Error(), "\n") {
				t.Errorf("%s is %s: %v", name, what, is.refused)
			}
			for _, said := range is.said {
				if strings.Contains(said, "\n") {
					t.Errorf("%s is %s: it says %s", name, what, said)
				}
			}
		}
	}
	if tables == 0 {
		t.Errorf("there is no table: %q", slices.Sorted(maps.Keys(whole)))
	}
}

// TestAManifestThatNamesNoTableIsRefused: a copy of a state has
// no logs with its first commits, and its manifest was cut behind the first record.
func TestAManifestThatNamesNoTableIsRefused(t *testing.T) {
	disk := vfs.NewMem()
	e := mustOpen(t, pebble.Options{Dir: "original", FS: disk})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "a"}) })
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := e.Backup(t.Context(), "state"); err != nil {
		t.Fatal(err)
	}
	mustClose(t, e)
	whole := filesOf(t, disk)
	_, name, _ := strings.Cut(markerOf(whole), "MANIFEST-")
	name = "MANIFEST-" + name
	whole[name] = whole[name][:firstRecord(whole[name])]
	if is := open20(t, whole); !errors.Is(is.refused, engine.ErrCorrupt) {
		t.Errorf("%s is cut: %v, %q", name, is.refused, is.said)
	}
}

// firstRecord returns where the first record of a manifest ends.
func firstRecord(manifest []byte) int {
	const header = 7
	return header + int(binary.LittleEndian.Uint16(manifest[4:]))
}

// markerOf returns the name of the file that says which manifest is read.
func markerOf(f files) string {
	for name := range f {
		if strings.HasPrefix(name, "marker.manifest.") {
			return name
		}
	}
	return ""
}

// TestALogThatLostAPartIsRefused: what follows was answered and is gone.
func TestALogThatLostAPartIsRefused(t *testing.T) {
	whole, _ := lived(t, true)
	last := ""
	for name := range whole {
		if strings.HasSuffix(name, ".log") {
			last = max(last, name)
		}
	}
	size := len(strings.TrimRight(string(whole[last]), "\x00"))
	for name, from := range map[string]int{"beginning": 0, "middle": size / 2, "three quarters": size * 3 / 4} {
		damaged := slices.Clone(whole[last])
		for i := range 8 {
			damaged[from+i] ^= 0x55
		}
		all := files{last: damaged}
		for other, content := range whole {
			if other != last {
				all[other] = content
			}
		}
		if is := open20(t, all); !errors.Is(is.refused, engine.ErrCorrupt) || !strings.Contains(is.refused.Error(), last) {
			t.Errorf("%s: %v, %q", name, is.refused, is.said)
		}
	}
}

// TestMarksNeverGoBack takes the log away from a state.
func TestMarksNeverGoBack(t *testing.T) {
	for _, killed := range []bool{true, false} {
		whole, _ := lived(t, killed)
		for name := range whole {
			if strings.HasSuffix(name, ".log") {
				whole[name] = nil
			}
		}
		delete(whole, "journal") // it would tell what is missing
		is := open20(t, whole)
		if is.refused != nil || len(is.said) == 0 || !strings.Contains(is.rows, `"`+engine.Mark+`token" "00000249"`) {
			t.Errorf("killed %t: %v, %q", killed, is.refused, is.said)
		}
	}
}

// TestLogsThatPebbleKeepsAreNotMissed: when many memtables become tables at once,
// Pebble keeps the first few of their logs, to use them again, and deletes the later
// ones. So the numbers of commits have a gap in a state that was closed in good order.
func TestLogsThatPebbleKeepsAreNotMissed(t *testing.T) {
	disk := heldTables{vfs.NewMem(), make(chan struct{})}
	e := mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	for i := range 16 {
		mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: fmt.Sprint("row", i)}) })
		if err := e.AsyncFlush(); err != nil { // which begins another log
			t.Fatal(err)
		}
	}
	close(disk.held)
	mustClose(t, e)
	e = mustOpen(t, pebble.Options{Dir: "state", FS: disk})
	if rows, err := contentsOf(t, e); err != nil || !strings.Contains(rows, "row15") {
		t.Errorf("%v, rows %s", err, rows)
	}
	mustClose(t, e)
}

// heldTables makes no table before held is closed.
type heldTables struct {
	vfs.FS
	held chan struct{}
}

func (f heldTables) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		<-f.held
	}
	return f.FS.Create(name, category)
}
