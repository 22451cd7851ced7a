package daemon

import (
	"fmt"
	"os"
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
	max  int64

	mu   sync.Mutex
	file *os.File
	size int64
}

func openRotated(path string) (*rotated, error) {
	r := &rotated{path: path, max: maxLog}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *rotated) open() error {
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	info, err := file.Stat()
	if err == nil {
		err = unix.Dup2(int(file.Fd()), int(os.Stderr.Fd()))
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("open the log: %w", err)
	}
	r.file, r.size = file, info.Size()
	return nil
}

// Write writes one line of the log. If the file cannot be rotated, it keeps
// growing, because a log that is too long is better than none.
func (r *rotated) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > 0 && r.size+int64(len(line)) > r.max {
		if err := os.Rename(r.path, r.path+".old"); err == nil {
			full := r.file
			if err := r.open(); err == nil {
				full.Close()
			}
		}
	}
	n, err := r.file.Write(line)
	r.size += int64(n)
	return n, err
}

func (r *rotated) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}
