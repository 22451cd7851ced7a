package tree

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold/dispatch/launcher"
)

const (
	// logPoll is how often agents' logs are looked at: they write into files
	// of their own, which nothing stands between.
	logPoll = 100 * time.Millisecond

	// maxLogLine is how much of a line is shown, in bytes.
	maxLogLine = 4 << 10
)

// A logView prints what agents write, each line after its path.
type logView struct {
	dir   *launcher.Directory
	lines *lineView

	mu    sync.Mutex
	tails map[string][]*tail // by the actor's path
	stop  chan struct{}
	done  chan struct{}
}

func newLogView(dir *launcher.Directory, lines *lineView) *logView {
	v := &logView{dir: dir, lines: lines, tails: make(map[string][]*tail), stop: make(chan struct{}), done: make(chan struct{})}
	go v.follow()
	return v
}

func (v *logView) follow() { // ends with close
	defer close(v.done)
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.mu.Lock()
			for path := range v.tails {
				v.print(path)
			}
			v.mu.Unlock()
		case <-v.stop:
			return
		}
	}
}

// before is told of an event that is about to be shown: what an agent wrote
// stands before its end.
func (v *logView) before(e launcher.Event) {
	v.mu.Lock() // held until after: lines do not mix
	if e.Event == launcher.ActorExited {
		v.print(e.Path)
		for _, t := range v.tails[e.Path] {
			t.rest(func(line string) { v.lines.line(time.Now(), e.Path+" | "+line) })
			t.file.Close()
		}
		delete(v.tails, e.Path)
	}
}

func (v *logView) after(e launcher.Event) {
	defer v.mu.Unlock()
	if e.Event != launcher.ActorStarted {
		return
	}
	for _, name := range e.Logs {
		if f, err := os.Open(name); err == nil {
			v.tails[e.Path] = append(v.tails[e.Path], &tail{file: f})
		}
	}
}

// print shows what an agent has written since the last look. The caller holds
// mu.
func (v *logView) print(path string) {
	for _, t := range v.tails[path] {
		t.read(func(line string) { v.lines.line(time.Now(), path+" | "+line) })
	}
}

func (v *logView) close() error {
	close(v.stop)
	<-v.done
	var err error
	for _, tails := range v.tails {
		for _, t := range tails {
			err = errors.Join(err, t.file.Close())
		}
	}
	return err
}

// A tail is a file that another process appends to, and that begins again when it
// is full: see [launcher.Earlier].
type tail struct {
	file *os.File
	at   int64  // what is before it has been read
	part []byte // of a line that has no end yet
}

// read yields the lines that are new.
func (t *tail) read(line func(string)) {
	if info, err := t.file.Stat(); err == nil && info.Size() < t.at { // it has begun again
		if earlier, err := os.Open(t.file.Name() + launcher.Earlier); err == nil {
			t.take(earlier, line)
			earlier.Close()
		}
		t.at = 0
	}
	t.take(t.file, line)
}

func (t *tail) take(from io.ReaderAt, line func(string)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.ReadAt(buf, t.at)
		t.at += int64(n)
		t.part = append(t.part, buf[:n]...)
		for {
			i := bytes.IndexByte(t.part, '\n')
			if i < 0 && len(t.part) < maxLogLine {
				break
			}
			if i < 0 {
				i = maxLogLine - 1
			}
			line(string(bytes.TrimRight(t.part[:min(i, maxLogLine)], "\r\n")))
			t.part = t.part[i+1:]
		}
		if err != nil || n == 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				t.part = nil
			}
			return
		}
	}
}

// rest yields the last line, if it has no end.
func (t *tail) rest(line func(string)) {
	if len(t.part) > 0 {
		line(string(t.part))
	}
	t.part = nil
}
