package tree

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/logs"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

const (
	// logPoll is the interval at which the logs of agents are read. Agents
	// write directly into their files.
	logPoll = 100 * time.Millisecond

	// maxLogLine is how many bytes of a line are shown.
	maxLogLine = 4 << 10
)

// A logView prints the output of agents, each line after the agent's path.
type logView struct {
	lines *lineView

	mu    sync.Mutex
	tails map[string][]*tail // by the path of the actor
	stop  chan struct{}
	done  chan struct{}
}

func newLogView(lines *lineView) *logView {
	v := &logView{lines: lines, tails: make(map[string][]*tail), stop: make(chan struct{}), done: make(chan struct{})}
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

// before is called before an event is shown, so that an agent's output is shown
// before its end.
func (v *logView) before(e launcher.Event) {
	v.mu.Lock() // held until after, so that lines do not mix
	if e.Event == launcher.ActorExited {
		v.print(e.Path)
		for _, t := range v.tails[e.Path] {
			t.rest(func(line string) { v.lines.line(time.Now(), e.Path+" | "+logs.Clean(line)) })
			t.File.Close()
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
			v.tails[e.Path] = append(v.tails[e.Path], &tail{Tail: launcher.Tail{File: f}})
		}
	}
}

// print shows an agent's new output. The caller holds mu.
func (v *logView) print(path string) {
	for _, t := range v.tails[path] {
		t.read(func(line string) { v.lines.line(time.Now(), path+" | "+logs.Clean(line)) })
	}
}

func (v *logView) close() error {
	close(v.stop)
	<-v.done
	var err error
	for _, tails := range v.tails {
		for _, t := range tails {
			err = errors.Join(err, t.File.Close())
		}
	}
	return err
}

// A tail reads a file line by line while another process appends to it.
type tail struct {
	launcher.Tail
	part []byte // an incomplete line
}

// read yields the new lines. A line that is too long is split.
func (t *tail) read(line func(string)) {
	_ = t.Next(func(some []byte) { // a read error counts as no new output
		t.part = append(t.part, some...)
		for {
			switch i := bytes.IndexByte(t.part, '\n'); {
			case i >= 0 && i <= maxLogLine:
				line(string(bytes.TrimRight(t.part[:i], "\r\n")))
				t.part = t.part[i+1:]
			case len(t.part) > maxLogLine:
				line(string(t.part[:maxLogLine]))
				t.part = t.part[maxLogLine:]
			default:
				return
			}
		}
	})
}

// rest yields the last line if it has no newline.
func (t *tail) rest(line func(string)) {
	if len(t.part) > 0 {
		line(string(t.part))
	}
	t.part = nil
}
