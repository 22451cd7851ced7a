package pebble_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	database "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// contentOf reads the files of a directory on the real disk.
func contentOf(t *testing.T, dir string) files {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := make(files)
	for _, entry := range list {
		if entry.IsDir() {
			continue
		}
		if all[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// refused opens a directory and looks at it, which must fail and change nothing.
func refused(t *testing.T, dir string, want error) {
	t.Helper()
	before := contentOf(t, dir)
	if e, err := pebble.Open(pebble.Options{Dir: dir}); !errors.Is(err, want) {
		t.Errorf("opened: %v, not %v", err, want)
		if err == nil {
			_ = e.Close()
		}
	}
	if _, err := pebble.Look(dir, "row"); !errors.Is(err, want) {
		t.Errorf("looked at: %v, not %v", err, want)
	}
	if !maps.EqualFunc(before, contentOf(t, dir), bytes.Equal) {
		t.Error("its files have changed")
	}
}

// A log of LevelDB, for one, looks like a damaged log of a state.
func TestTheFilesOfOtherProgramsAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(t *testing.T, dir string){
		"pebble": func(t *testing.T, dir string) {
			db, err := database.Open(dir, &database.Options{FormatMajorVersion: database.FormatNewest})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Set([]byte("key"), []byte("value"), database.Sync), db.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"leveldb": func(t *testing.T, dir string) {
			f, err := os.Create(filepath.Join(dir, "000003.log"))
			if err != nil {
				t.Fatal(err)
			}
			w := record.NewWriter(f)
			_, err = w.WriteRecord([]byte("a batch"))
			if err := errors.Join(err, w.Close(), f.Close(), os.WriteFile(filepath.Join(dir, "CURRENT"), []byte("MANIFEST-000002\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		},
		"any": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "data.sqlite"), []byte("a table"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir)
			refused(t, dir, pebble.ErrForeign)
		})
	}
}

// A new disk has a directory of its own, and the system may leave hidden files.
func TestADirectoryWithoutDataBecomesAState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "lost+found"), 0o700), os.WriteFile(filepath.Join(dir, ".keep"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if value, err := pebble.Look(dir, "row"); value != "" || err != nil {
		t.Errorf("before: %q %v", value, err)
	}
	e := mustOpen(t, pebble.Options{Dir: dir})
	mustUpdate(t, e, func(tx engine.Tx) { tx.Put(engine.Row{Key: "row", Value: "value"}) })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	before := contentOf(t, dir)
	if value, err := pebble.Look(dir, "row"); value != "value" || err != nil {
		t.Errorf("looked at: %q %v", value, err)
	}
	if !maps.EqualFunc(before, contentOf(t, dir), bytes.Equal) {
		t.Error("the look has changed its files")
	}
}

// What a later version writes may look damaged to this one, which must not cut it off.
func TestTheFilesOfALaterVersionAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := mustOpen(t, pebble.Options{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	later := filepath.Join(dir, "marker.format-version.999999."+strconv.Itoa(int(database.FormatNewest)+1))
	if err := errors.Join(os.WriteFile(logs[0], []byte("in a later format"), 0o600), os.WriteFile(later, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, engine.ErrNewer)
	if _, err := pebble.Exists(dir); !errors.Is(err, engine.ErrNewer) { // which every daemon asks first
		t.Errorf("whether it exists: %v", err)
	}

	// The files may be in a format that Pebble knows, and their content may not be.
	dir = t.TempDir()
	e := mustOpen(t, pebble.Options{Dir: dir})
	if err := errors.Join(e.SetFormat(pebble.Format+1), e.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := pebble.Look(dir, "row"); !errors.Is(err, engine.ErrNewer) {
		t.Errorf("looked at: %v", err)
	}
	if _, err := pebble.Open(pebble.Options{Dir: dir}); !errors.Is(err, engine.ErrNewer) {
		t.Errorf("opened: %v", err)
	}
}
