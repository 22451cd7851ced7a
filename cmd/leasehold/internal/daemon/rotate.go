package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// maxLog is the largest size of the log of a daemon that a client started.
// There is one such file, and one with the earlier content.
const maxLog = 8 << 20

// A rotated is a log file that starts over when it is full. Its earlier content
// is then in a file with the suffix .old. Standard error also goes to this
// file, so that it has the trace of a crash.
type rotated struct {
	path string
	dir  *os.File // keeps its identity
	max  int64

	mu   sync.Mutex
	file *os.File
}

func openRotated(path string) (*rotated, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	r := &rotated{path: path, dir: dir, max: maxLog}
	if err := r.open(); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return r, nil
}

func (r *rotated) open() error {
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	if err := unix.Dup2(int(file.Fd()), int(os.Stderr.Fd())); err != nil {
		_ = file.Close()
		return fmt.Errorf("open the log: %w", err)
	}
	if r.file != nil {
		_ = r.file.Close()
	}
	r.file = file
	return nil
}

// Write writes one line of the log. A log that was moved or removed begins again: nobody
// would look for it elsewhere, or bound it there. But if the directory is another, it
// belongs to another state. If the file cannot be rotated, it keeps growing, because a log
// that is too long is better than none.
func (r *rotated) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isAt(r.dir, filepath.Dir(r.path)) {
		info, err := os.Stat(r.path)
		full := err == nil && info.Size() > 0 && info.Size()+int64(len(line)) > r.max
		if !isAt(r.file, r.path) || full && os.Rename(r.path, r.path+".old") == nil {
			_ = r.open()
		}
	}
	n, err := r.file.Write(line)
	if err != nil && n > 0 { // the disk was full in the middle of the line, and the next is not to be a part of it
		if info, statErr := r.file.Stat(); statErr == nil {
			_ = r.file.Truncate(info.Size() - int64(n))
		}
	}
	return n, err
}

// isAt reports whether an open file is the one at path.
func isAt(file *os.File, path string) bool {
	open, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.file.Close(), r.dir.Close())
}
