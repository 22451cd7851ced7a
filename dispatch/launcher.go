package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

// A launcher is who starts the processes of one run: an operator's session, or
// the memory of one that is away.
type launcher struct {
	run   uuid.UUID
	name  string
	peer  Peer      // its process; zero: not known
	party *party    // nil while it is away; under State.mu
	since time.Time // away since; under State.mu

	mu    sync.Mutex           // one answer at a time is put together
	given map[uuid.UUID]string // what this attachment was told to do about each actor
}

// A Dispatch begins a run whose actors are launched, or goes on with one.
type Dispatch struct {
	Run      string
	Root     Order
	Agents   []string // those that an order can name
	Settings Settings
	Resume   bool      // go on with a run whose launcher is gone
	Attach   uuid.UUID // the same launcher again: its run's id; Root, Agents and Settings stand

	// A process may attach while its last connection is still believed to
	// stand: that one is no launcher from then on.
}

// DispatchRun makes se, an operator's session, the launcher of a run.
func (s *State) DispatchRun(ctx context.Context, se *Session, req Dispatch) (info RunInfo, err error) {
	if se.actor.Role != Operator {
		return RunInfo{}, forbidden("%s is an actor; runs are dispatched by an operator", se.actor.Path)
	}
	if err := CheckRun(req.Run); err != nil {
		return RunInfo{}, err
	}
	if req.Resume {
		// Whoever went with the launcher is counted as lost before it is asked
		// whether anybody is left.
		for _, l := range s.launchersAway() {
			if l.name != req.Run {
				continue
			}
			if err := s.sweep(ctx, l); err != nil {
				return RunInfo{}, err
			}
		}
	}
	l := &launcher{name: req.Run, peer: se.peer, party: se.party, given: make(map[uuid.UUID]string)}
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		run, err := s.begin(tx, req, se.peer)
		if err != nil {
			return err
		}
		l.run = run.ID
		d, _ := getDispatched(tx, run.Name)
		root, _ := getActor(tx, run.Root)
		info = RunInfo{run, &d, s.tree(tx, root, nil)}
		s.appoint(l) // here, since the next transaction may ask whether there is one
		return nil
	})
	if err != nil {
		s.dismiss(l)
		return RunInfo{}, err
	}
	context.AfterFunc(se.ctx, func() { s.launcherAway(l) })
	return info, nil
}

// begin makes the run that is asked for, or finds it as it must be.
func (s *State) begin(tx engine.Tx, req Dispatch, peer Peer) (Run, error) {
	run, exists := getRun(tx, req.Run)
	d, dispatched := getDispatched(tx, req.Run)
	switch {
	case req.Attach != uuid.Nil:
		if !dispatched || d.RunID != req.Attach || !run.EndedAt.IsZero() {
			return Run{}, notFound("run %q with the id %s, to go on with", req.Run, req.Attach)
		}
		if s.launched(run.ID) && (peer.PID == 0 || peer != d.Launcher) {
			return Run{}, fmt.Errorf("a launcher of run %q: %w; there is one to a run", req.Run, ErrExists)
		}
		amendDispatched(tx, run.Name, func(d *Dispatched) { d.Launcher = peer })
		return run, nil
	case req.Resume:
		if !dispatched {
			return Run{}, notFound("a dispatched run %q; leave out --resume to begin one", req.Run)
		}
		return run, s.resumeRun(tx, run, d, req, peer)
	case exists && run.EndedAt.IsZero() && !dispatched:
		return Run{}, fmt.Errorf("run %q: %w, and its actors are not launched; end it (leasehold actor end --run %s root) or choose another name", req.Run, ErrExists, req.Run)
	case exists && run.EndedAt.IsZero() && s.launched(run.ID):
		return Run{}, fmt.Errorf("run %q: %w, under process %d; wait for it to end, or choose another name", req.Run, ErrExists, d.Launcher.PID)
	case exists && run.EndedAt.IsZero():
		return Run{}, fmt.Errorf("run %q: %w, unfinished; go on with it (leasehold dispatch --resume %s) or end it (leasehold actor end --run %s root)", req.Run, ErrExists, req.Run, req.Run)
	}
	if err := CheckName(req.Root.Name); err != nil {
		return Run{}, err
	}
	o := rootOrder(req)
	if err := o.check(req.Agents); err != nil {
		return Run{}, err
	}
	root := s.makeRun(tx, NewActor{Run: req.Run, Name: o.Name, Role: Root, Caps: req.Settings.caps()})
	run, _ = getRun(tx, req.Run)
	put(tx, dispatchedKey(run.Name), Dispatched{
		RunID: run.ID, Life: 1, Agents: req.Agents, Settings: req.Settings, Launcher: peer,
	}, uuid.Nil)
	s.order(tx, run, root, uuid.Nil, o)
	return run, nil
}

// rootOrder is the root's order: the budget of a run is its root's.
func rootOrder(req Dispatch) Order {
	o := req.Root
	if req.Settings.Budget > 0 {
		o.Budget = req.Settings.Budget
	}
	return o
}

// resumeRun begins another life of a run: its root is started again, and those
// it spawns again are met as they are.
func (s *State) resumeRun(tx engine.Tx, run Run, d Dispatched, req Dispatch, peer Peer) error {
	root, _ := getActor(tx, run.Root)
	w, _ := getWork(tx, run.Root)
	switch {
	case s.launched(run.ID):
		return fmt.Errorf("run %q: %w, under process %d; wait for it to end, or choose another name", run.Name, ErrExists, d.Launcher.PID)
	case d.Unfinished > 0:
		return fmt.Errorf("run %q cannot be resumed yet: %d of its actors have processes, or a dispatcher that may come back; end those processes, or try again in %s", run.Name, d.Unfinished, s.opts.DetachedGrace)
	case w.Status == Succeeded:
		return forbidden("run %q has succeeded, there is nothing to resume; leave out --resume to begin anew", run.Name)
	}
	req.Root.Name = root.Name
	o := rootOrder(req)
	if err := o.check(req.Agents); err != nil {
		return err
	}
	run.EndedAt = time.Time{}
	run.Caps = req.Settings.caps().or(s.opts.Caps).or(defaultCaps)
	putRun(tx, run)
	amendDispatched(tx, run.Name, func(d *Dispatched) {
		d.Life++
		d.Agents, d.Settings, d.Drain, d.Launcher = req.Agents, req.Settings, nil, peer
	})
	if root.Ended() {
		revive(tx, run, &root)
	}
	s.order(tx, run, root, uuid.Nil, o)
	return nil
}

// appoint makes l the launcher of its run.
func (s *State) appoint(l *launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.launchers[l.run] = l
	clear(s.layers) // the bounds of their stores may be others now
}

// returning reports whether a run's launcher is away and may come back.
func (s *State) returning(run uuid.UUID) bool {
	s.mu.Lock()
	l := s.launchers[run]
	away := l != nil && !l.attachedLocked()
	s.mu.Unlock()
	return away && s.opts.Alive(l.peer)
}

// launcherPause is how long a spawn waits for a launcher that may come back:
// after a restart of the daemon its agents may be there before it.
const launcherPause = 5 * time.Second

// awaitLauncher waits until a run's launcher is back or will not be.
func (s *State) awaitLauncher(ctx context.Context, run Run) {
	watch := s.eng.Watch(dispatchedKey(run.Name)) // stands before the first look
	defer watch.Stop()
	timeout := time.NewTimer(launcherPause)
	defer timeout.Stop()
	for s.returning(run.ID) {
		select {
		case <-watch.C:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// launched reports whether a run's launcher is connected.
func (s *State) launched(run uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.launchers[run]
	return l != nil && l.attachedLocked()
}

// attachedLocked reports whether the launcher's session lives. It asks the
// session itself: that has ended before anybody is told.
func (l *launcher) attachedLocked() bool { return l.party != nil && l.party.ctx.Err() == nil }

// launcherAway notes that a launcher's session has ended. Its run waits for it.
func (s *State) launcherAway(l *launcher) {
	s.mu.Lock()
	if l.party != nil {
		l.party, l.since = nil, time.Now()
	}
	s.mu.Unlock()
	s.sweepSoon()
}

// dismiss forgets the launcher of a run that has ended.
func (s *State) dismiss(l *launcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.launchers[l.run] == l {
		delete(s.launchers, l.run)
	}
}

// launcherOf is the launcher of a run, if se is it.
func (s *State) launcherOf(se *Session, name string) (*launcher, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.launchers {
		if l.name == name && l.party == se.party && l.attachedLocked() {
			return l, nil
		}
	}
	return nil, forbidden("this connection is not the launcher of run %q: begin with operator_run_dispatch", name)
}

// Orders are what a launcher is to do next.
type Orders struct {
	Launch     []Launch
	Stop       []StopOrder // deepest first
	Draining   bool
	Unfinished int
}

// A Launch is the order to start a process.
type Launch struct {
	Actor  Actor
	Life   int
	Token  string // of the actor
	Handle string // of the session that is kept open for the process
	Order  Order
}

// A StopOrder is the order to end one, and with it all that it started.
type StopOrder struct {
	Actor Actor
	Stop
}

// errOrdersWithdrawn ends a transaction whose caller is gone.
var errOrdersWithdrawn = errors.New("the launcher has given up this call")

// NextOrders returns what the launcher has not been told yet, as soon as there
// is any, or nothing is unfinished, or wait is over. Each order is given once
// to each attachment. One that is given again, to a launcher that came back
// before it said that the process had started, comes with a new token and a
// new session: it says so first.
func (s *State) NextOrders(ctx context.Context, se *Session, name string, wait time.Duration) (Orders, error) {
	if wait < 0 || wait > registry.MaxWait {
		return Orders{}, &registry.ArgumentError{Argument: "wait_secs", Problem: fmt.Sprintf("must be from 0 to %d", registry.MaxWait/time.Second)}
	}
	l, err := s.launcherOf(se, name)
	if err != nil {
		return Orders{}, err
	}
	ctx, stop := se.Within(ctx)
	defer stop()
	// The watch stands before the first look.
	watch := s.eng.Watch(dispatchedKey(name))
	defer watch.Stop()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for last := wait == 0; ; {
		o, err := s.handOut(ctx, l)
		if err != nil || last || len(o.Launch)+len(o.Stop) > 0 || o.Unfinished == 0 {
			return o, err
		}
		select {
		case <-watch.C:
		case <-timeout.C:
			last = true
		case <-ctx.Done():
			return Orders{}, context.Cause(ctx)
		}
	}
}

// maxLaunches bounds one answer: an order may be as large as its prompt.
const maxLaunches = 16

// handOut puts one answer together.
func (s *State) handOut(ctx context.Context, l *launcher) (o Orders, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var opened, ended []uuid.UUID // sessions
	defer func() {
		if err != nil {
			s.letGo(opened)
		}
	}()
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		d, ok := getDispatched(tx, l.name)
		if !ok || d.RunID != l.run {
			return notFound("run %q: it has ended", l.name)
		}
		o = Orders{Draining: d.Drain != nil}
		for id, todo := range unfinished(tx, l.run) {
			if todo == nothing || l.given[id] == todo {
				continue // nearly all, each time: their works are not read
			}
			w, _ := getWork(tx, id)
			a, _ := getActor(tx, id)
			if todo == toStop && w.Status == Pending && l.given[w.Actor] == "" {
				// It was handed out before this attachment, which said what
				// was started: nothing was. If it is being started just now,
				// that is refused.
				run, _ := getRun(tx, l.name)
				ended = append(ended, s.endWork(tx, run, a, Exit{Status: w.Stop.Status, Cause: w.Stop.Reason})...)
				continue
			}
			if todo == toStop {
				o.Stop = append(o.Stop, StopOrder{a, *w.Stop})
				continue
			}
			if len(o.Launch) == maxLaunches {
				continue // the next answer has it
			}
			launch := s.openLaunch(tx, a, w)
			id, _, _ := openSecret(handleMark, launch.Handle)
			s.hold(id)
			opened = append(opened, id)
			o.Launch = append(o.Launch, launch)
		}
		if ctx.Err() != nil {
			return errOrdersWithdrawn // nobody reads it: it is not given
		}
		d, _ = getDispatched(tx, l.name)
		o.Unfinished = d.Unfinished
		return nil
	})
	if err != nil {
		return Orders{}, err
	}
	s.sever(ended, fmt.Errorf("run %s: stopped before a process was started", l.name))
	for _, launch := range o.Launch {
		l.given[launch.Actor.ID] = toLaunch
	}
	for _, stop := range o.Stop {
		l.given[stop.Actor.ID] = toStop
	}
	slices.SortFunc(o.Launch, func(a, b Launch) int { return a.Actor.CreatedAt.Compare(b.Actor.CreatedAt) })
	slices.SortStableFunc(o.Stop, func(a, b StopOrder) int { return depth(b.Actor) - depth(a.Actor) })
	return o, nil
}

// depth is how far an actor is below its root.
func depth(a Actor) int {
	if a.Role == Root {
		return 0
	}
	return strings.Count(a.Path, Separator) + 1
}

// openLaunch makes the token of an actor and the session that is kept open for
// its process. Those that were made before, for a launcher that never said
// that it started one, are void.
func (s *State) openLaunch(tx engine.Tx, a Actor, w Work) Launch {
	if w.handedOut() {
		s.letGo([]uuid.UUID{w.Session})
		tx.Delete(sessionKey(w.Session))
		s.core.EndSession(tx, w.Session)
		s.queue.EndSession(tx, w.Session)
	}
	o := Launch{Life: w.Life, Order: getOrder(tx, a.ID)}
	o.Token, a.TokenHash = newSecret(tokenMark, a.ID)
	putActor(tx, a)
	o.Actor = a
	record := sessionRecord{ID: uuid.New(), Actor: a.ID, OpenedAt: tx.Now()}
	o.Handle, record.Secret = newSecret(handleMark, record.ID)
	putSession(tx, record)
	w.Session = record.ID
	putWork(tx, w)
	return o
}

// hold keeps a session open while no connection has it: that of a process that
// is launched. It ends with its actor.
func (s *State) hold(session uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[session] = struct{}{}
}

// letGo takes back holds of sessions that did not come to be.
func (s *State) letGo(sessions []uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range sessions {
		delete(s.held, id)
	}
}

// LaunchStarted notes the process of an actor.
func (s *State) LaunchStarted(ctx context.Context, se *Session, name string, actor uuid.UUID, pid int) error {
	l, err := s.launcherOf(se, name)
	if err != nil {
		return err
	}
	process := s.opts.Process(pid).Peer
	process.PID, process.Transport = pid, "unix"
	var before int
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		w, a, err := workIn(tx, l, actor)
		if err != nil {
			return err
		}
		if w.Status.Final() {
			return forbidden("%s is %s already: end process %d", a.Path, w.Status, pid)
		}
		before, w.Status, w.Process = w.Process.PID, Running, process
		if w.StartedAt.IsZero() {
			w.StartedAt = tx.Now()
		}
		putWork(tx, w)
		if record, ok := get[sessionRecord](tx, sessionKey(w.Session)); ok {
			record.Peer = process
			putSession(tx, record)
		}
		if w.Stop == nil {
			putUnfinished(tx, l.run, actor, nothing)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.forget(before, actor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[pid] = launchedProcess{process, actor}
	return nil
}

// LaunchExited notes how the process of an actor ended. To report an end again
// changes nothing.
func (s *State) LaunchExited(ctx context.Context, se *Session, name string, actor uuid.UUID, e Exit) (info ActorInfo, result []byte, err error) {
	if !e.Status.known() || !e.Status.Final() {
		return ActorInfo{}, nil, &registry.ArgumentError{Argument: "status", Problem: "must be one that is final"}
	}
	l, err := s.launcherOf(se, name)
	if err != nil {
		return ActorInfo{}, nil, err
	}
	var ended []uuid.UUID
	var pid int
	err = s.eng.Update(ctx, func(tx engine.Tx) error {
		w, a, err := workIn(tx, l, actor)
		if err != nil {
			return err
		}
		if !w.Status.Final() {
			run, _ := getRun(tx, name)
			ended = s.endWork(tx, run, a, e)
			a, _ = getActor(tx, actor)
		}
		pid = w.Process.PID
		info, result = s.info(tx, a), resultOf(tx, actor)
		return nil
	})
	if err != nil {
		return ActorInfo{}, nil, err
	}
	s.forget(pid, actor)
	s.sever(ended, fmt.Errorf("the process of actor %s of run %s has ended: %s", info.Path, name, e.Status))
	return info, result, nil
}

// forget removes a process that is gone.
func (s *State) forget(pid int, actor uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.processes[pid].actor == actor {
		delete(s.processes, pid)
	}
}

// workIn finds a work of a launcher's run.
func workIn(tx engine.Tx, l *launcher, actor uuid.UUID) (Work, Actor, error) {
	w, ok := getWork(tx, actor)
	a, _ := getActor(tx, actor)
	if !ok || a.Run != l.name {
		return Work{}, Actor{}, notFound("launched actor %s in run %q", actor, l.name)
	}
	return w, a, nil
}
