package process

import (
	"bytes"
	"os"
	"sync"
)

// An identity identifies a process. A pid alone is not enough, because the
// system reuses it.
type identity struct {
	pid   int
	start uint64 // start time in a unit of the system; a later one is greater
}

// An entry is one process of a table. A zombie has no entry: it has ended, and
// its children have another parent.
type entry struct {
	identity
	parent, group, session int
}

// there reports whether the process still runs.
func (id identity) there() bool {
	start, ok := startOf(id.pid)
	return ok && start == id.start
}

// A table is the result of one scan of all processes.
type table struct {
	entries map[int]*entry

	mu       sync.Mutex
	environs map[int][]byte // cache of the environments read so far
}

func look() (*table, error) {
	entries, err := readTable()
	if err != nil {
		return nil, err
	}
	t := &table{entries: make(map[int]*entry, len(entries)), environs: make(map[int][]byte)}
	for i := range entries {
		t.entries[entries[i].pid] = &entries[i]
	}
	return t, nil
}

// marked reports whether the environment that the process was started with has
// the pair.
func (t *table) marked(pid int, mark string) bool {
	t.mu.Lock()
	env, ok := t.environs[pid]
	t.mu.Unlock()
	if !ok {
		env = readEnviron(pid)
		t.mu.Lock()
		t.environs[pid] = env
		t.mu.Unlock()
	}
	if !bytes.Contains(env, []byte(mark)) {
		return false
	}
	for rest := env; len(rest) > 0; {
		var pair []byte
		pair, rest, _ = bytes.Cut(rest, []byte{0})
		if string(pair) == mark {
			return true
		}
	}
	return false
}

// own returns the caller and its ancestors, which must not be ended.
func (t *table) own() map[int]bool {
	line := map[int]bool{0: true, 1: true}
	for pid := os.Getpid(); !line[pid]; {
		line[pid] = true
		e, ok := t.entries[pid]
		if !ok {
			break
		}
		pid = e.parent
	}
	return line
}

// depth returns the number of ancestors of a process.
func (t *table) depth(e *entry) int {
	n := 0
	for ; e != nil && n < len(t.entries); n++ {
		e = t.entries[e.parent]
	}
	return n
}

// A looker shares scans among callers. A scan takes milliseconds on a machine
// with thousands of processes, and a whole run may be stopped at once.
type looker struct {
	mu    sync.Mutex
	next  *looking // the scan that begins next; nil if nobody has asked for one
	doing bool
}

type looking struct {
	done  chan struct{}
	table *table
	err   error
}

var shared looker

// look returns the result of a scan that began after the call.
func (l *looker) look() (*table, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &looking{done: make(chan struct{})}
	}
	mine := l.next
	if !l.doing {
		l.doing = true
		go l.run() // ends when nobody asks for another scan
	}
	l.mu.Unlock()
	<-mine.done
	return mine.table, mine.err
}

func (l *looker) run() {
	for {
		l.mu.Lock()
		now := l.next
		l.next = nil
		l.doing = now != nil
		l.mu.Unlock()
		if now == nil {
			return
		}
		now.table, now.err = look()
		close(now.done)
	}
}
