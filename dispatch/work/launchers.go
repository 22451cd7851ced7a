package work

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
)

// Launchers is what a daemon knows, in memory alone, of those who start
// processes: who launches each run, which sessions are kept open for launched
// processes, and which processes those are.
type Launchers struct {
	eng  engine.Engine
	opts Options
	left chan struct{} // a launcher has left

	mu        sync.Mutex
	keptOpen  map[uuid.UUID]struct{}  // sessions of launched processes
	byRun     map[uuid.UUID]*Launcher // of runs that have not ended
	processes map[int]launchedProcess // by pid
}

// Options of Launchers.
type Options struct {
	Alive func(process.Peer) bool
	Find  func(pid int) process.Running
}

// NewLaunchers knows nobody yet.
func NewLaunchers(eng engine.Engine, opts Options) *Launchers {
	return &Launchers{
		eng: eng, opts: opts, left: make(chan struct{}, 1),
		keptOpen:  make(map[uuid.UUID]struct{}),
		byRun:     make(map[uuid.UUID]*Launcher),
		processes: make(map[int]launchedProcess),
	}
}

// A Launcher starts the processes of one run: an operator's session, or the
// memory of one that is away.
type Launcher struct {
	Run  uuid.UUID
	Name string       // of the run
	Peer process.Peer // its process; zero: not known

	session context.Context // of the operator; nil: it is away. Under Launchers.mu
	away    time.Duration   // for how long, while this machine was awake. Under Launchers.mu

	mu    sync.Mutex         // one answer at a time is put together
	given map[uuid.UUID]Todo // what this attachment was told to do about each actor
}

// NewLauncher is an operator's session that becomes the launcher of the run
// called name; session ends when that does.
func NewLauncher(session context.Context, name string, peer process.Peer) *Launcher {
	return &Launcher{Name: name, Peer: peer, session: session, given: make(map[uuid.UUID]Todo)}
}

// Tell runs fn, which puts together one answer for the launcher. given says
// what the launcher was told before about each actor; fn adds to it once the
// answer is certain.
func (l *Launcher) Tell(fn func(given map[uuid.UUID]Todo) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fn(l.given)
}

// attachedLocked reports whether the launcher's session lives. It asks the
// session itself: that has ended before anybody is told.
func (l *Launcher) attachedLocked() bool { return l.session != nil && l.session.Err() == nil }

// Set makes l the launcher of its run. undo takes that back.
func (ls *Launchers) Set(l *Launcher) (undo func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	before, ok := ls.byRun[l.Run]
	ls.byRun[l.Run] = l
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		switch {
		case ls.byRun[l.Run] != l:
		case ok:
			ls.byRun[l.Run] = before
		default:
			delete(ls.byRun, l.Run)
		}
	}
}

// Recover remembers, after a restart, the launcher of a run and the works it
// has not finished: it is away, and the sessions of its processes are kept open.
func (ls *Launchers) Recover(name string, d Dispatched, works []Work) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byRun[d.RunID] = &Launcher{Run: d.RunID, Name: name, Peer: d.Launcher}
	for _, w := range works {
		if w.HandedOut() {
			ls.keptOpen[w.Session] = struct{}{}
		}
		if w.Process.PID != 0 {
			ls.processes[w.Process.PID] = launchedProcess{w.Process, w.Actor}
		}
	}
}

// Forget forgets the launcher of a run that has ended.
func (ls *Launchers) Forget(l *Launcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byRun[l.Run] == l {
		delete(ls.byRun, l.Run)
	}
}

// Of is the launcher of the run called name, if it is that session.
func (ls *Launchers) Of(session context.Context, name string) (*Launcher, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byRun {
		if l.Name == name && l.session == session && l.attachedLocked() {
			return l, true
		}
	}
	return nil, false
}

// Attached reports whether a run's launcher is connected.
func (ls *Launchers) Attached(run uuid.UUID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byRun[run]
	return l != nil && l.attachedLocked()
}

// Returning reports whether a run's launcher is away and may come back.
func (ls *Launchers) Returning(run uuid.UUID) bool {
	ls.mu.Lock()
	l := ls.byRun[run]
	away := l != nil && !l.attachedLocked()
	ls.mu.Unlock()
	return away && ls.opts.Alive(l.Peer)
}

// pause is how long a spawn waits for a launcher that may come back: after a
// restart of the daemon its agents may be there before it.
const pause = 5 * time.Second

// AwaitReturn waits until a run's launcher is back or will not be.
func (ls *Launchers) AwaitReturn(ctx context.Context, name string, run uuid.UUID) {
	watch := ls.eng.Watch(Key(name))
	defer watch.Stop()
	_ = engine.Await(ctx, watch, pause, func(last bool) error {
		if last || !ls.Returning(run) {
			return nil
		}
		return engine.ErrWait
	})
}

// Leave notes that a launcher's session has ended. Its run waits for it.
func (ls *Launchers) Leave(l *Launcher) {
	ls.mu.Lock()
	l.session = nil
	ls.mu.Unlock()
	select {
	case ls.left <- struct{}{}:
	default:
	}
}

// Left wakes when a launcher has left.
func (ls *Launchers) Left() <-chan struct{} { return ls.left }

// Away are the launchers that have left a run behind.
func (ls *Launchers) Away() (list []*Launcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byRun {
		if !l.attachedLocked() {
			l.session = nil // it may have ended just now
			list = append(list, l)
		}
	}
	return list
}

// Missed counts for how long a launcher has been away, in looks that are step
// apart, so that the sleep of the machine does not count. It gives the sum.
func (ls *Launchers) Missed(l *Launcher, step time.Duration) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.away += step
	return l.away
}

// Gone reports whether the process of a launcher has ended.
func (ls *Launchers) Gone(l *Launcher) bool { return l.Peer.PID != 0 && !ls.opts.Alive(l.Peer) }

// KeepOpen keeps a session open while no connection has it: that of a process
// that is launched. It ends with its actor.
func (ls *Launchers) KeepOpen(session uuid.UUID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.keptOpen[session] = struct{}{}
}

// UnkeepOpen takes back KeepOpen of sessions that have ended or did not come to
// be.
func (ls *Launchers) UnkeepOpen(sessions ...uuid.UUID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, id := range sessions {
		delete(ls.keptOpen, id)
	}
}

// KeptOpen reports whether a session is kept open for a launched process.
func (ls *Launchers) KeptOpen(session uuid.UUID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	_, ok := ls.keptOpen[session]
	return ok
}

// Started notes the process of an actor, in place of the one it had before.
func (ls *Launchers) Started(actor uuid.UUID, now process.Peer, before int) {
	ls.Ended(actor, before)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.processes[now.PID] = launchedProcess{now, actor}
}

// Ended notes that the process of an actor is gone.
func (ls *Launchers) Ended(actor uuid.UUID, pid int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.processes[pid].actor == actor {
		delete(ls.processes, pid)
	}
}
