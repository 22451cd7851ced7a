package setup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// A brokenError says at which position a file is malformed.
type brokenError struct {
	Line, Column int
	Why          string
}

func (e *brokenError) Error() string { return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Why) }

// why returns the reason of an error, without the position: the text is not that of the
// file.
func why(err error) string {
	if broken, ok := errors.AsType[*brokenError](err); ok {
		return broken.Why
	}
	return err.Error()
}

// A snapshot is the state of a file when it was read.
type snapshot struct {
	path   string // with links resolved
	marked bool   // the file begins with a byte order mark
	text   []byte // without the mark
	exists bool
	linked bool // the file has another hard link
	mode   fs.FileMode
}

// byteOrderMark is what some editors write before a text in UTF-8. No format has it, so
// it is taken off when a file is read, and put back when the file is written.
var byteOrderMark = []byte("\uFEFF")

// maxConfig limits the size of a configuration.
const maxConfig = 64 << 20

// read reads a file before an edit. It refuses a file that setup cannot replace.
func read(path string) (s snapshot, err error) {
	s = snapshot{path: path, mode: 0o600} // its client may put secrets into it
	_, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.path = realPath(path)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if s.path, err = filepath.EvalSymlinks(path); err != nil {
		return s, fmt.Errorf("%s is a link that leads nowhere: %w", path, err)
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return s, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return s, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxConfig:
		return s, fmt.Errorf("%s is larger than %d MiB", path, maxConfig>>20)
	case ok && int(stat.Uid) != os.Getuid():
		return s, fmt.Errorf("%s belongs to user %d", path, stat.Uid)
	}
	s.exists, s.linked, s.mode = true, ok && stat.Nlink > 1, info.Mode().Perm()
	s.text, err = os.ReadFile(s.path)
	s.text, s.marked = bytes.CutPrefix(s.text, byteOrderMark)
	return s, err
}

// realPath resolves the links of the directories above a file, as far as they exist, so
// that the file has only one name in the record.
func realPath(path string) string {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil && filepath.Dir(path) != path {
		dir = realPath(filepath.Dir(path))
	}
	return filepath.Join(dir, filepath.Base(path))
}

// replace atomically replaces the text of a file and keeps its mode. Only a mount point and
// a file with several hard links are overwritten instead. It fails if the file has changed
// since it was read. It returns the directories that it made.
func (s snapshot) replace(text []byte) (made []string, err error) {
	if s.exists && s.mode&0o200 == 0 {
		return nil, fmt.Errorf("%s is read-only", s.path)
	}
	beforeWrite()
	now, err := read(s.path)
	if err != nil {
		return nil, err
	}
	if now.exists != s.exists || now.marked != s.marked || !bytes.Equal(now.text, s.text) {
		return nil, fmt.Errorf("%s was changed by another program meanwhile; try again", s.path)
	}
	dir := filepath.Dir(s.path)
	if made, err = makeDirs(dir, s.mode|s.mode&0o444>>2|0o100); err != nil {
		return made, err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(s.path)+"-*")
	if err != nil {
		return made, err
	}
	if s.marked {
		text = slices.Concat(byteOrderMark, text)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(s.mode), f.Sync(), f.Close()); err != nil {
		return made, errors.Join(err, os.Remove(f.Name()))
	}
	if !s.linked {
		err = os.Rename(f.Name(), s.path)
	}
	if s.linked || errors.Is(err, syscall.EBUSY) { // a mount point, as in a dev container
		var there *os.File
		if there, err = os.OpenFile(s.path, os.O_WRONLY, 0); err == nil {
			if err := overwrite(there, text); err != nil {
				return made, fmt.Errorf("%w; %s has the text that belongs there", err, f.Name())
			}
			return made, os.Remove(f.Name())
		}
	}
	if err != nil {
		return made, errors.Join(err, os.Remove(f.Name()))
	}
	return made, nil
}

// overwrite writes a text over that of an open file, and closes it. It shortens the file
// last, so that the file is never empty.
func overwrite(f *os.File, text []byte) error {
	_, err := f.Write(text)
	if err == nil {
		err = errors.Join(f.Truncate(int64(len(text))), f.Sync())
	}
	return errors.Join(err, f.Close())
}

// beforeWrite lets a test change the file as another program would.
var beforeWrite = func() {}

// remove removes a file. It fails if the file has changed since it was read.
func (s snapshot) remove() error {
	now, err := read(s.path)
	if err != nil {
		return err
	}
	if !bytes.Equal(now.text, s.text) {
		return fmt.Errorf("%s was changed by another program meanwhile; try again", s.path)
	}
	return os.Remove(s.path)
}

// makeDirs makes a directory and its missing parents. It returns the directories that it
// made, the deepest first.
func makeDirs(dir string, mode fs.FileMode) (made []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	return made, os.MkdirAll(dir, mode)
}
