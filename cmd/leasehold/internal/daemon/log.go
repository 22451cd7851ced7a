package daemon

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// logConfig says how a daemon logs. No log has a token, a handle or a lease_id.
type logConfig struct {
	Format string // json or console; "": as fits the place
	Level  string
}

// open returns a logger that writes to w.
func (c logConfig) open(w io.Writer) zerolog.Logger {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		level = zerolog.InfoLevel
	}
	console, plain := c.Format == "console" || c.Format == "" && terminal.Is(w), !terminal.PaintFor(w).On
	to := func(w io.Writer) zerolog.Logger {
		if console {
			w = zerolog.ConsoleWriter{Out: w, NoColor: plain, TimeFormat: time.TimeOnly}
		}
		return zerolog.New(w).Level(level).With().Timestamp().Logger()
	}
	file, ok := terminal.FileOf(w)
	if !ok {
		return to(w)
	}
	return to(&readLog{file: file, missing: func(lines int) []byte {
		var text bytes.Buffer
		log := to(&text)
		log.Warn().Int("lines", lines).Msg("nobody read the log, so lines are missing here")
		return text.Bytes()
	}})
}

// A readLog is a log that somebody reads as it is written, through a pipe or on a terminal.
// What nobody reads is left out, as after Ctrl-S or behind a collector that stands still.
// Otherwise whoever logs would wait, and with it all clients.
type readLog struct {
	file    *os.File
	missing func(lines int) []byte // says how many were left out

	mu   sync.Mutex
	left int
}

// maxUnread is how long a line waits for the reader, unless the one before was left out.
const maxUnread = 50 * time.Millisecond

func (r *readLog) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := maxUnread
	if r.left > 0 {
		wait = 0
	}
	if !writable(r.file, wait) {
		r.left++
		return len(line), nil
	}
	if r.left > 0 {
		_, _ = r.file.Write(r.missing(r.left))
		r.left = 0
		if !writable(r.file, 0) {
			r.left = 1
			return len(line), nil
		}
	}
	return r.file.Write(line)
}

// writable reports whether some 4 KiB can be written to a file without waiting.
func writable(file *os.File, wait time.Duration) bool {
	fds := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLOUT}}
	for {
		n, err := unix.Poll(fds, int(wait.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n != 0 || err != nil // if it cannot be told, try
		}
	}
}
