package pebble

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
)

// ErrForeign is returned by Open if the directory has files, and none of those that
// every state has. Nothing was changed.
var ErrForeign = errors.New("it has files of another program, and no state")

// checkFiles refuses the files of another program, those of a later version of Pebble,
// and an incomplete copy that lacks a marker. It comes before anything is written: the
// logs of the first two look damaged here, and a damaged end of a log is cut off.
//
// Every state has a pidFile from before Pebble writes anything until it is closed, and a
// marksFile once it has been open. If that was lost, the marks of its logs show it.
func (s *store) checkFiles() (fresh bool, err error) {
	names, err := s.fs.List(s.fs.dir)
	if err != nil {
		return false, err
	}
	if _, err := peek(s.fs.dir, s.fs.FS); errors.Is(err, engine.ErrNewer) {
		return false, err
	}
	// Without its markers Pebble makes a new state, and deletes the tables of this one.
	for _, marker := range []string{"marker.format-version.", "marker.manifest."} {
		if slices.Contains(names, marksFile) && !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, marker) }) {
			return false, fmt.Errorf("%w: the file %s* is missing", engine.ErrCorrupt, marker)
		}
	}
	if slices.ContainsFunc(names, func(name string) bool {
		return name == pidFile || name == marksFile || name == journalFile || strings.HasSuffix(name, liveMark)
	}) {
		return false, nil
	}
	for _, name := range names {
		info, err := s.fs.Stat(s.fs.path(name))
		if err != nil || info.IsDir() || name == "LOCK" || strings.HasPrefix(name, ".") { // such as lost+found
			continue
		}
		return false, fmt.Errorf("%w: %s", ErrForeign, name)
	}
	return true, nil
}

// Look returns the value of a hot row, or "" if there is none, of a state that nobody has
// open. It writes nothing and does not lock the state. It returns [engine.ErrNewer] and
// [ErrForeign] as Open does.
func Look(dir, key string) (value string, err error) {
	s := &store{fs: &stateFS{FS: vfs.Default, dir: dir}}
	if fresh, err := s.checkFiles(); err != nil || fresh {
		return "", err
	}
	db, err := openPebble(dir, &pebble.Options{FS: unlocked{vfs.Default}, ReadOnly: true, Logger: silent{}})
	if err != nil {
		return "", err
	}
	s.db, s.reader = db, reader{db}
	if _, err = s.format(); err == nil {
		value, err = memory.Value(s.reader, key)
	}
	return value, errors.Join(err, db.Close())
}

// unlocked is a file system on which Pebble takes no lock.
type unlocked struct{ vfs.FS }

func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Errorf(format, args...)) // openPebble returns it
}
