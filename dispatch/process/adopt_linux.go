package process

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// adopting says whether this process adopts the descendants that lose their
// parent, and whom it has to tell from them.
var adopting struct {
	sync.Mutex
	users    int
	children map[int]bool                    // that this package started in a session of their own, until they are reaped
	dogs     map[*Watchdog]map[identity]bool // and whom each has been told of
}

// adoptPoll is how often adopted processes are looked for.
const adoptPoll = 50 * time.Millisecond

// Adopt makes this process the parent of every descendant that loses its own,
// until release is called (PR_SET_CHILD_SUBREAPER). So a process that leaves its
// parents, its session and its environment still belongs to what it comes from:
// [End] ends it, and a [Watchdog] is told of it. Where the system cannot do that,
// it does nothing.
func Adopt() (release func(), err error) {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.users == 0 {
		if err := setSubreaper(1); err != nil {
			return nil, err
		}
	}
	adopting.users++
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with release
		defer close(done)
		tick := time.NewTicker(adoptPoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				seeToAdopted()
			case <-stop:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(stop)
		<-done
		seeToAdopted()
		adopting.Lock()
		defer adopting.Unlock()
		if adopting.users--; adopting.users == 0 {
			_ = setSubreaper(0) // it was possible to set it
		}
	}), nil
}

// seeToAdopted reaps adopted processes that have ended and tells the watchdogs of
// the others.
func seeToAdopted() {
	adopting.Lock()
	defer adopting.Unlock()
	for _, pid := range childrenOf() {
		e, dead, ok := readStat(pid)
		if !ok || !adoptedLocked(e) {
			continue
		}
		if dead {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // nobody else waits for it
			continue
		}
		for dog, told := range adopting.dogs {
			if !told[e.identity] {
				told[e.identity] = true
				dog.tell(watchWord, e.pid, e.start)
			}
		}
	}
	for dog, told := range adopting.dogs {
		maps.DeleteFunc(told, func(id identity, _ bool) bool {
			if id.there() {
				return false
			}
			dog.tell(forgetWord, id.pid, id.start)
			return true
		})
	}
}

// adoptedLocked tells an adopted child from one that this process started. What
// an agent starts is never in the session of the dispatcher: only what a process
// starts itself is.
func adoptedLocked(e entry) bool {
	return e.parent == os.Getpid() && !adopting.children[e.pid] && e.session != ownSession()
}

var ownSession = sync.OnceValue(func() int {
	e, _ := readEntry(os.Getpid())
	return e.session
})

// adoptedIn are the adopted processes of a table.
func adoptedIn(t *table) (list []*entry) {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.users == 0 {
		return nil
	}
	for _, e := range t.entries {
		if adoptedLocked(*e) {
			list = append(list, e)
		}
	}
	return list
}

// childrenOf are the children of this process, dead ones too.
func childrenOf() (pids []int) {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	for _, file := range files {
		text, _ := os.ReadFile(file) // of a thread that has just ended there is none
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// startChild starts a process that is not to be taken for an adopted one.
func startChild(start func() (pid int, err error)) error {
	adopting.Lock()
	defer adopting.Unlock()
	pid, err := start()
	if err == nil {
		if adopting.children == nil {
			adopting.children = make(map[int]bool)
		}
		adopting.children[pid] = true
	}
	return err
}

// reapChild reaps such a process.
func reapChild(pid int, reap func()) {
	adopting.Lock()
	defer adopting.Unlock()
	reap()
	delete(adopting.children, pid)
}

// reapedChild is for one that was reaped elsewhere. An adopted process that has
// its pid by now is known from the next look on.
func reapedChild(pid int) { reapChild(pid, func() {}) }

func tellOfAdopted(w *Watchdog) {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.dogs == nil {
		adopting.dogs = make(map[*Watchdog]map[identity]bool)
	}
	adopting.dogs[w] = make(map[identity]bool)
}

func tellNoMore(w *Watchdog) {
	adopting.Lock()
	defer adopting.Unlock()
	delete(adopting.dogs, w)
}

// withoutAdopting runs start, which starts a process that is to be nobody's
// here.
func withoutAdopting(start func() error) error {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.users == 0 {
		return start()
	}
	if err := setSubreaper(0); err != nil {
		return err
	}
	defer func() { _ = setSubreaper(1) }() // it was possible before
	return start()
}

func setSubreaper(on uintptr) error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)
}
