package work

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
)

// Launchers is what a daemon knows, in memory only, about launchers and their
// processes: who launches each run, which sessions are kept open for launched
// processes, and which processes those are.
type Launchers struct {
	eng  engine.Engine
	opts Options
	left chan struct{} // holds a token after a launcher has joined or left

	mu        sync.Mutex
	keptOpen  map[uuid.UUID]struct{}  // sessions of launched processes
	byRun     map[uuid.UUID]*Launcher // the dispatchers of runs that have not ended
	machines  map[machine]*Launcher   // the other launchers of such runs
	processes map[int]launchedProcess // by pid
}

// Options of Launchers.
type Options struct {
	Alive func(process.Peer) bool
	Find  func(pid int) process.Running
}

// NewLaunchers returns Launchers without any launcher.
func NewLaunchers(eng engine.Engine, opts Options) *Launchers {
	return &Launchers{
		eng: eng, opts: opts, left: make(chan struct{}, 1),
		keptOpen:  make(map[uuid.UUID]struct{}),
		byRun:     make(map[uuid.UUID]*Launcher),
		machines:  make(map[machine]*Launcher),
		processes: make(map[int]launchedProcess),
	}
}

// A machine identifies a machine that serves a run.
type machine struct {
	run  uuid.UUID
	name string
}

// A Launcher starts processes of one run. It is an operator's session, or the record of
// one that is away. One launcher dispatches the run and has no Machine. Each of the
// others starts the works that are placed on its machine.
type Launcher struct {
	Run      uuid.UUID
	Name     string       // of the run
	Peer     process.Peer // its process; zero: not known
	Machine  string       // "": it dispatches the run
	Labels   []string     // of the machine
	Instance string       // chosen at random by its process; "": not known

	// HangUp ends the operator's session. It is set for the launcher of a further
	// machine.
	HangUp func(cause error)

	leaving bool          // it starts nothing more. Guarded by Launchers.mu
	asking  int           // its calls that wait for orders. Guarded by Launchers.mu
	silent  time.Duration // how long there has been none while this machine was awake. Guarded by Launchers.mu

	session context.Context // the operator's session; nil: the launcher is away. Guarded by Launchers.mu
	away    time.Duration   // how long it has been away while this machine was awake. Guarded by Launchers.mu

	mu    sync.Mutex         // held while an answer is assembled
	given map[uuid.UUID]Todo // the orders that this attachment has been given, by actor
}

// NewLauncher returns the launcher of the run called name. session is the
// context of the operator's session.
func NewLauncher(session context.Context, name string, peer process.Peer) *Launcher {
	return &Launcher{Name: name, Peer: peer, session: session, given: make(map[uuid.UUID]Todo)}
}

// Remote reports whether the launcher connected with --server, or its process runs where
// this one cannot see it.
func (l *Launcher) Remote() bool { return l.Peer.Transport == "remote" || l.Peer.Elsewhere() }

// Starts reports whether the order of a work is for the launcher.
func (l *Launcher) Starts(w Work) bool {
	return w.Machine == l.Machine && w.Label == "" ||
		!w.HandedOut() && (w.Machine == AnyMachine || l.Machine != "" && slices.Contains(l.Labels, w.Label))
}

// Owns reports whether a work is lost when the launcher is gone: it runs on that machine
// or is placed there. A work that no launcher was given yet also belongs to the
// dispatcher.
func (l *Launcher) Owns(w Work) bool {
	return w.Machine == l.Machine && w.Label == "" || l.Machine == "" && !w.HandedOut()
}

// String names the launcher in messages.
func (l *Launcher) String() string {
	if l.Machine == "" {
		return "its dispatcher"
	}
	return fmt.Sprintf("machine %q", l.Machine)
}

// Tell runs fn, which assembles one answer for the launcher. given has the
// orders that the launcher has been given so far, by actor. fn adds to it once
// the answer is certain.
func (l *Launcher) Tell(fn func(given map[uuid.UUID]Todo) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fn(l.given)
}

// attachedLocked reports whether the launcher's session lives. It checks the
// session's context, because Leave is called only some time after the session
// ends.
func (l *Launcher) attachedLocked() bool { return l.session != nil && l.session.Err() == nil }

// Set makes l the launcher of its run. undo restores the previous one.
func (ls *Launchers) Set(l *Launcher) (undo func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	before := ls.placeLocked(l)
	ls.putLocked(l, l)
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if ls.placeLocked(l) == l {
			ls.putLocked(l, before)
		}
	}
}

// placeLocked returns the registered launcher of l's run and machine.
func (ls *Launchers) placeLocked(l *Launcher) *Launcher {
	if l.Machine == "" {
		return ls.byRun[l.Run]
	}
	return ls.machines[machine{l.Run, l.Machine}]
}

// putLocked registers now for l's run and machine. If now is nil, none is registered.
func (ls *Launchers) putLocked(l, now *Launcher) {
	switch key := (machine{l.Run, l.Machine}); {
	case l.Machine == "" && now == nil:
		delete(ls.byRun, l.Run)
	case l.Machine == "":
		ls.byRun[l.Run] = now
	case now == nil:
		delete(ls.machines, key)
	default:
		ls.machines[key] = now
	}
}

// allLocked yields all launchers.
func (ls *Launchers) allLocked(yield func(*Launcher) bool) {
	for _, l := range ls.byRun {
		if !yield(l) {
			return
		}
	}
	for _, l := range ls.machines {
		if !yield(l) {
			return
		}
	}
}

// Machine returns the launcher that serves a run from the machine, connected or away. It
// returns nil if there is none.
func (ls *Launchers) Machine(run uuid.UUID, name string) (l *Launcher, attached bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l = ls.machines[machine{run, name}]
	return l, l != nil && l.attachedLocked()
}

// Fitting returns the names of the connected machines of a run that match a placement,
// and of all its connected machines. Machines that are leaving are left out. In fit, ""
// is the dispatcher's machine, which only AnyMachine matches.
func (ls *Launchers) Fitting(run uuid.UUID, p Placement) (fit, all []string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if p.Machine == AnyMachine {
		fit = append(fit, "")
	}
	for key, l := range ls.machines {
		if key.run != run || !l.attachedLocked() || l.leaving {
			continue
		}
		all = append(all, l.Machine)
		if p.Machine == AnyMachine || p.Machine == l.Machine || p.Label != "" && slices.Contains(l.Labels, p.Label) {
			fit = append(fit, l.Machine)
		}
	}
	slices.Sort(fit)
	slices.Sort(all)
	return fit, all
}

// BeginLeaving stops further works from being placed with a launcher. The launcher does
// not come back after its session has ended.
func (ls *Launchers) BeginLeaving(l *Launcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.leaving = true
}

// Recover registers, after a restart, the launcher of a run and its unfinished
// works. The launcher counts as away, and the sessions of its processes are
// kept open.
func (ls *Launchers) Recover(name string, d Dispatched, works []Work) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byRun[d.RunID] = &Launcher{Run: d.RunID, Name: name, Peer: d.Launcher, Instance: d.Instance}
	for _, w := range works {
		if key := (machine{d.RunID, w.Machine}); w.HandedOut() && w.Machine != "" {
			ls.machines[key] = &Launcher{Run: d.RunID, Name: name, Machine: w.Machine, Instance: w.Instance}
		}
		if w.HandedOut() {
			ls.keptOpen[w.Session] = struct{}{}
		}
		if w.Process.PID != 0 && !w.Process.Elsewhere() {
			ls.processes[w.Process.PID] = launchedProcess{w.Process, w.Actor}
		}
	}
}

// Forget removes the launcher of a run that has ended.
func (ls *Launchers) Forget(l *Launcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.placeLocked(l) == l {
		ls.putLocked(l, nil)
	}
}

// Of returns the launcher of the run called name, if session is its session.
func (ls *Launchers) Of(session context.Context, name string) (*Launcher, bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.allLocked {
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

// Returning reports whether a run's launcher is away and its process still
// lives.
func (ls *Launchers) Returning(run uuid.UUID) bool {
	ls.mu.Lock()
	l := ls.byRun[run]
	away := l != nil && !l.attachedLocked()
	ls.mu.Unlock()
	return away && (l.Remote() || ls.opts.Alive(l.Peer))
}

// pause is how long a spawn waits for a launcher that may come back. After a
// restart of the daemon, agents may reconnect before their launcher does.
const pause = 5 * time.Second

// AwaitReturn waits until a run's launcher is back, can no longer come back, or
// a pause has passed.
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

// Leave records that a launcher's session has ended.
func (ls *Launchers) Leave(l *Launcher) {
	ls.mu.Lock()
	l.session = nil
	ls.mu.Unlock()
	ls.Wake()
}

// Left returns a channel that receives a value when a launcher has joined or left.
func (ls *Launchers) Left() <-chan struct{} { return ls.left }

// Away returns the launchers of running runs that are not connected.
func (ls *Launchers) Away() (list []*Launcher) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.allLocked {
		if !l.attachedLocked() {
			l.session = nil // it may have ended without Leave having been called yet
			list = append(list, l)
		}
	}
	return list
}

// Missed adds step to the time that a launcher has been away, and returns the
// sum. Counting steps leaves out the time in which the machine sleeps.
func (ls *Launchers) Missed(l *Launcher, step time.Duration) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l.away += step
	return l.away
}

// Gone reports whether a launcher cannot come back: its process has ended, or it has
// left.
func (ls *Launchers) Gone(l *Launcher) bool {
	ls.mu.Lock()
	left := l.leaving
	ls.mu.Unlock()
	return left || l.Peer.PID != 0 && !ls.opts.Alive(l.Peer)
}

// SilentLimit is how long the launcher of a further machine may be connected without
// asking for orders. A launcher that works asks again as soon as it has an answer. One
// that does not is frozen, although its connection may stay open.
const SilentLimit = 20 * time.Second

// Asking notes that a launcher asks for orders, until done is called.
func (ls *Launchers) Asking(l *Launcher) (done func()) {
	change := func(by int) {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		l.asking, l.silent = l.asking+by, 0
	}
	change(1)
	return func() { change(-1) }
}

// Silent adds step to the time for which launchers have not asked for orders. It returns
// those for which that is too long, and which then count as away for that time, and
// whether others have to be watched.
func (ls *Launchers) Silent(step time.Duration) (list []*Launcher, more bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.machines {
		if !l.attachedLocked() || l.leaving || l.HangUp == nil {
			continue
		}
		if l.asking == 0 {
			l.silent += step
		}
		if l.silent >= SilentLimit {
			l.session, l.away = nil, l.silent
			list = append(list, l)
			continue
		}
		more = true
	}
	return list, more
}

// Wake makes the receiver of Left look at the launchers.
func (ls *Launchers) Wake() {
	select {
	case ls.left <- struct{}{}:
	default:
	}
}

// KeepOpen keeps the session of a launched process open while it has no
// connection. The session ends with its actor.
func (ls *Launchers) KeepOpen(session uuid.UUID) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.keptOpen[session] = struct{}{}
}

// UnkeepOpen reverses KeepOpen for sessions that have ended or were not
// created.
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

// Started records the process of an actor, in place of its earlier process.
func (ls *Launchers) Started(actor uuid.UUID, now process.Peer, before int) {
	ls.Ended(actor, before)
	if now.Elsewhere() {
		return // its pid means nothing here
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.processes[now.PID] = launchedProcess{now, actor}
}

// Ended records that the process of an actor is gone.
func (ls *Launchers) Ended(actor uuid.UUID, pid int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.processes[pid].actor == actor {
		delete(ls.processes, pid)
	}
}
