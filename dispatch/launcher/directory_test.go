package launcher_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/process"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Two runs that begin in the same second have each a directory, and the last is
// the one that is found by the run's name.
func TestRunsHaveDirectoriesOfTheirOwn(t *testing.T) {
	base := filepath.Join(t.TempDir(), "a [b] *") // no pattern
	var last *launcher.Directory
	seen := map[string]bool{}
	for range 3 {
		d, err := launcher.NewDirectory(base, "build", noon)
		if err != nil {
			t.Fatal(err)
		}
		if seen[d.Path] {
			t.Fatalf("%s is given twice", d.Path)
		}
		seen[d.Path] = true
		if info, err := os.Stat(d.Path); err != nil || info.Mode().Perm() != 0o700 {
			t.Fatalf("%s: mode %v, %v", d.Path, info.Mode(), err)
		}
		put(t, d, launcher.RunFile{Run: "build"})
		last = d
	}
	for _, by := range []string{"build", last.Path} {
		found, err := launcher.FindDirectory(base, by)
		if err != nil || found.Path != last.Path {
			t.Errorf("by %q: %v, %v; want %s", by, found, err, last.Path)
		}
	}
	if _, err := launcher.FindDirectory(base, "other"); err == nil || !strings.Contains(err.Error(), `no run "other"`) {
		t.Errorf("a run that never was: %v", err)
	}
}

// A launcher of a further machine may have its directory beside the dispatcher's, as on a
// machine that does both. A run is resumed from the dispatcher's, and the output of an
// actor is where it was started.
func TestDirectoriesOfLaunchersAreNotThoseOfDispatchers(t *testing.T) {
	base := t.TempDir()
	at := func(n int, f launcher.RunFile, started string) string {
		t.Helper()
		d, err := launcher.NewDirectory(base, "build", noon.Add(time.Duration(n)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, f)
		launcher.TellThrough(d, nil, nil, launcher.Event{Event: launcher.ActorStarted, Path: started})
		return d.Path
	}
	at(0, launcher.RunFile{Run: "build", RunID: "1"}, "early")
	dispatcher := at(1, launcher.RunFile{Run: "build", RunID: "2"}, "root")
	machine := at(2, launcher.RunFile{Run: "build", RunID: "2", Machine: "a", Instance: "x"}, "w")
	if found, err := launcher.FindDirectory(base, "build"); err != nil || found.Path != dispatcher {
		t.Errorf("to resume: %v, %v; want %s", found, err, dispatcher)
	}
	for path, want := range map[string]string{"root": dispatcher, "w": machine, "early": machine, "": machine} {
		if found, err := launcher.FindStarted(base, "build", path); err != nil || found.Path != want {
			t.Errorf("of %q: %v, %v; want %s", path, found, err, want)
		}
	}
	if _, err := launcher.FindDirectory(filepath.Dir(machine), machine); err == nil || !strings.Contains(err.Error(), "was dispatched elsewhere") {
		t.Errorf("to resume a launcher's: %v", err)
	}
}

// Agents work in other directories than the dispatcher, and are given paths in
// the run directory: it is named in full.
func TestDirectoriesAreNamedInFull(t *testing.T) {
	t.Chdir(t.TempDir())
	d, err := launcher.NewDirectory("runs", "build", noon)
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, launcher.RunFile{Run: "build"})
	found, err := launcher.FindDirectory("runs", "build")
	if err != nil || found.Path != d.Path || !filepath.IsAbs(d.Path) {
		t.Errorf("made %s, found %v, %v", d.Path, found, err)
	}
}

// A run is unfinished if it has no summary and nobody dispatches it any more.
func TestUnfinishedRunsAreThoseWhoseDispatcherIsGone(t *testing.T) {
	base := filepath.Join(t.TempDir(), "a [b] *") // no pattern
	gone := process.Peer{PID: os.Getpid(), Start: "another process of this pid"}
	make := func(run string, f launcher.RunFile) *launcher.Directory {
		d, err := launcher.NewDirectory(base, run, noon)
		if err != nil {
			t.Fatal(err)
		}
		f.Run = run
		put(t, d, f)
		return d
	}
	left := make("left", launcher.RunFile{RunID: "1", Dispatcher: gone})
	running := make("running", launcher.RunFile{RunID: "2", Dispatcher: process.Find(os.Getpid()).Peer})
	unborn := make("unborn", launcher.RunFile{Dispatcher: gone})
	over := make("over", launcher.RunFile{RunID: "3", Dispatcher: gone})
	if err := os.WriteFile(filepath.Join(over.Path, "summary.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*launcher.Directory{left, running, unborn, over} {
		if d.Left() != (d == left) {
			t.Errorf("%s is left: %v", d.Path, d.Left())
		}
	}
	if names := launcher.RunNames(base); !slices.Equal(names, []string{"left", "over", "running", "unborn"}) {
		t.Errorf("there are %v", names)
	}
}

// A directory that is deleted is that of a finished run of this name and this daemon.
func TestOnlyFinishedDirectoriesAreDeleted(t *testing.T) {
	const here, yet = "the daemon's", "delete the directory yourself"
	for name, c := range map[string]struct {
		file       launcher.RunFile
		unfinished bool
		stray      string // a file among the actors' directories
		gone       bool
		why        string
	}{
		"finished":                {file: launcher.RunFile{Run: "build", Socket: here}, gone: true},
		"of a launcher":           {file: launcher.RunFile{Run: "build", Socket: here, Machine: "m"}, gone: true},
		"with a file of Finder's": {file: launcher.RunFile{Run: "build", Socket: here}, stray: ".DS_Store", gone: true},
		"of another daemon":       {file: launcher.RunFile{Run: "build", Socket: "another"}},
		"of another run":          {file: launcher.RunFile{Run: "Build", Socket: here}}, // where the case of letters is ignored
		"unfinished":              {file: launcher.RunFile{Run: "build", Socket: here}, unfinished: true, why: "the run was not dispatched to its end: if none of its processes is left, " + yet},
		"of a killed launcher":    {file: launcher.RunFile{Run: "build", Socket: here, Machine: "m"}, unfinished: true, why: "its launcher did not serve the run to its end: " + yet},
		"of a living launcher":    {file: launcher.RunFile{Run: "build", Socket: here, Machine: "m", Dispatcher: process.Find(os.Getpid()).Peer}, unfinished: true, why: "is dispatched by process"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			d, err := launcher.NewDirectory(base, "build", noon)
			if err != nil {
				t.Fatal(err)
			}
			put(t, d, c.file)
			files := []string{"actors/root/stdout.log"}
			if !c.unfinished {
				files = append(files, "summary.json")
			}
			if c.stray != "" {
				files = append(files, "actors/"+c.stray)
			}
			for _, file := range files {
				path := filepath.Join(d.Path, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			deleted, kept := launcher.DeleteDirectories(base, "build", here)
			if (deleted > 0) != c.gone || (len(kept) > 0) != (c.why != "") || len(kept) > 0 && !strings.Contains(kept[0].Why, c.why) {
				t.Errorf("%d are deleted, and left is %v", deleted, kept)
			}
			if _, err := os.Stat(d.Path); errors.Is(err, fs.ErrNotExist) != c.gone {
				t.Error(err)
			}
		})
	}
}

// An old directory is deleted unless the user has interrupted that.
func TestOldDirectoriesAreDeleted(t *testing.T) {
	base := t.TempDir()
	d, err := launcher.NewDirectory(base, "build", noon)
	if err != nil {
		t.Fatal(err)
	}
	put(t, d, launcher.RunFile{Run: "build"})
	summary := filepath.Join(d.Path, "summary.json")
	if err := os.WriteFile(summary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		_, err := os.Stat(d.Path)
		return errors.Is(err, fs.ErrNotExist)
	}
	if err := launcher.TidyUp(t.Context(), base, true); err != nil || gone() {
		t.Error("one of today is deleted")
	}
	old := time.Now().Add(-launcher.KeepDirectories - time.Hour)
	if err := os.Chtimes(summary, old, old); err != nil {
		t.Fatal(err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if err := launcher.TidyUp(interrupted, base, true); err != nil || gone() {
		t.Error("after an interrupt one is deleted")
	}
	if err := launcher.TidyUp(t.Context(), base, true); err != nil || !gone() {
		t.Error("an old one is left")
	}
}

// The directories of a run may be on another disk, behind a link. It stays while one does.
func TestALinkToDirectoriesStays(t *testing.T) {
	base, disk := t.TempDir(), t.TempDir()
	if err := os.Symlink(disk, filepath.Join(base, "build")); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		d, err := launcher.NewDirectory(base, "build", noon)
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, launcher.RunFile{Run: "build"})
		if n > 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(d.Path, "summary.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if deleted, kept := launcher.DeleteDirectories(base, "build", ""); deleted != 1 || len(kept) != 1 {
		t.Errorf("%d are deleted, and left is %v", deleted, kept)
	}
	if found, err := launcher.FindDirectory(base, "build"); err != nil {
		t.Errorf("the other: %v, %v", found, err)
	}
}

func put(t *testing.T, d *launcher.Directory, f launcher.RunFile) {
	t.Helper()
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "run.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
