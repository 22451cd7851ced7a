package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// adopting says whether this process adopts descendants that lose their parent,
// and which watchdogs it tells of them.
var adopting struct {
	sync.Mutex
	users    int
	children map[int]bool                    // pids of processes that this package started in a session of their own and that are not reaped yet
	dogs     map[*Watchdog]map[identity]bool // the adopted processes that each watchdog has been told of
}

// The interval at which adopted processes are looked for. It doubles with each look
// that finds nothing new: exec and the dispatcher may have nothing else to do for hours.
const (
	firstAdoptPoll = 50 * time.Millisecond
	lastAdoptPoll  = time.Second
)

// Adopt makes this process the parent of every descendant that loses its own,
// until release is called (PR_SET_CHILD_SUBREAPER). A process that leaves its
// parents, its session and its environment can then still be found: [End] ends
// it, and a [Watchdog] is told of it. On systems without this feature Adopt
// does nothing.
func Adopt() (release func(), err error) {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.users == 0 {
		switch err := setSubreaper(1); {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS): // a kernel that is not quite Linux
			return func() {}, nil
		case err != nil:
			return nil, fmt.Errorf("prctl PR_SET_CHILD_SUBREAPER: %w", err)
		}
	}
	adopting.users++
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with release
		defer close(done)
		for pause := firstAdoptPoll; ; {
			select {
			case <-time.After(pause):
				pause = min(2*pause, lastAdoptPoll)
				if seeToAdopted() {
					pause = firstAdoptPoll
				}
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
			_ = setSubreaper(0) // cannot fail: setting it worked
		}
	}), nil
}

// seeToAdopted reaps adopted processes that have ended, and tells the watchdogs
// about the others. It reports whether any of them is new or has ended.
func seeToAdopted() (news bool) {
	adopting.Lock()
	defer adopting.Unlock()
	for _, pid := range mayBeAdopted() {
		if adopting.children[pid] {
			continue
		}
		e, dead, ok := readStat(pid)
		if !ok || !adoptedLocked(e) {
			continue
		}
		if dead {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil) // nothing else waits for it
			news = true
			continue
		}
		for dog, told := range adopting.dogs {
			if !told[e.identity] {
				told[e.identity], news = true, true
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
	return news
}

// adoptedLocked distinguishes an adopted child from one that this process
// started. The processes of an agent are never in the dispatcher's session;
// children that the dispatcher itself starts are. A program with a terminal is in
// that session, but in a group of its own. Process 1 becomes the parent of a
// daemon that it has started detached, which is no process of the run.
func adoptedLocked(e entry) bool {
	if e.parent != os.Getpid() || adopting.children[e.pid] || e.session == ownSession() && !adopting.children[e.group] {
		return false
	}
	if e.parent == 1 {
		_, daemon := startedWith(e.pid, aliveVariable)
		return !daemon
	}
	return true
}

var ownSession = sync.OnceValue(func() int {
	e, _ := readEntry(os.Getpid())
	return e.session
})

// adoptedIn returns the adopted processes of a table.
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

// mayBeAdopted returns the children of the first thread of this process, zombies
// included. The kernel gives an orphan to the first thread of its new parent that
// has not ended, and Go keeps that thread to the end. A look at every thread would
// grow with the agents, since one waits for each of them.
func mayBeAdopted() (pids []int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())) // fails on a kernel without it
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// startChild starts a process that must not be mistaken for an adopted one.
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

// reapChild reaps a process that startChild started.
func reapChild(pid int, reap func()) {
	adopting.Lock()
	defer adopting.Unlock()
	reap()
	delete(adopting.children, pid)
}

// reapedChild is for a process that was reaped elsewhere. An adopted process
// that may already have its pid is recognised from the next check on.
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

// withoutAdopting runs start, which starts a process that this one must not
// adopt.
func withoutAdopting(start func() error) error {
	adopting.Lock()
	defer adopting.Unlock()
	if adopting.users == 0 {
		return start()
	}
	if err := setSubreaper(0); err != nil {
		return err
	}
	defer func() { _ = setSubreaper(1) }() // cannot fail: it was set before
	return start()
}

func setSubreaper(on uintptr) error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)
}
