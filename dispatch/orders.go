package dispatch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/event"
	"github.com/leasehold/leasehold/registry"
)

// Orders are the next orders for a launcher.
type Orders struct {
	Launch     []Launch
	Stop       []StopOrder // deepest first
	Draining   bool
	Unfinished int

	more bool // works that this answer did not have room for
}

// A Launch is an order to start a process.
type Launch struct {
	Actor  Actor
	Life   int
	Token  string // of the actor
	Handle string // of the session that is kept open for the process
	Order  work.Order
}

// A StopOrder is an order to end an actor's process and everything that it
// started.
type StopOrder struct {
	Actor Actor
	work.Stop
}

// errOrdersWithdrawn aborts a transaction whose caller has gone.
var errOrdersWithdrawn = errors.New("the launcher has given up this call")

// NextOrders returns the orders that the launcher has not been given yet. It
// waits until there are some, until nothing is unfinished, or until wait is
// over. Each order is given once per attachment. After a reconnect the launcher
// first reports which processes it has started. An order that is given again
// then comes with a new token and a new session.
func (s *State) NextOrders(ctx context.Context, se *Session, name string, wait time.Duration) (Orders, error) {
	if err := registry.CheckWait(wait); err != nil {
		return Orders{}, err
	}
	l, err := s.launcherOf(se, name)
	if err != nil {
		return Orders{}, err
	}
	ctx, stop := se.Within(ctx)
	defer stop()
	defer s.launchers.Asking(l)()
	watch := s.eng.Watch(work.Key(name))
	defer watch.Stop()
	var o Orders
	err = engine.Await(ctx, watch, wait, func(last bool) (err error) {
		for o.more = true; o.more && err == nil; {
			o, err = s.handOut(ctx, l)
		}
		if err == nil && !last && len(o.Launch)+len(o.Stop) == 0 && o.Unfinished > 0 {
			return engine.ErrWait
		}
		return err
	})
	if err != nil {
		return Orders{}, err
	}
	return o, nil
}

// maxLaunches is the greatest number of launches in one answer. One order may
// be as large as its prompt.
const maxLaunches = 16

// handOut assembles one answer.
func (s *State) handOut(ctx context.Context, l *work.Launcher) (o Orders, err error) {
	return o, l.Tell(func(given map[uuid.UUID]work.Todo) error {
		o, err = s.pickOrders(ctx, l, given)
		if err != nil {
			o = Orders{}
			return err
		}
		for _, launch := range o.Launch {
			given[launch.Actor.ID] = work.ToLaunch
		}
		for _, stop := range o.Stop {
			given[stop.Actor.ID] = work.ToStop
		}
		slices.SortFunc(o.Launch, func(a, b Launch) int { return a.Actor.CreatedAt.Compare(b.Actor.CreatedAt) })
		slices.SortStableFunc(o.Stop, func(a, b StopOrder) int { return depth(b.Actor) - depth(a.Actor) })
		return nil
	})
}

// pickOrders finds the orders that the launcher has not been given yet, and
// creates a session for each process to start.
func (s *State) pickOrders(ctx context.Context, l *work.Launcher, given map[uuid.UUID]work.Todo) (o Orders, err error) {
	var opened []uuid.UUID // sessions
	var replaced []cut
	err = s.ending(ctx, func(e *ender) error {
		tx := e.tx
		d, ok := work.RunOf(tx, l.Name)
		if !ok || d.RunID != l.Run {
			return say(ErrNotFound, "run %q has ended", l.Name)
		}
		o = Orders{Draining: d.Drain != nil}
		for id, todo := range work.Unfinished(tx, l.Run) {
			if todo == work.Nothing || given[id] == todo {
				continue // true of nearly all, so their works are not read
			}
			if todo == work.ToLaunch && len(o.Launch) == maxLaunches {
				continue // left for the next answer
			}
			w, _ := work.Get(tx, id)
			if !l.Starts(w) {
				continue // another's
			}
			a, _ := getActor(tx, id)
			if todo == work.ToStop && w.Status == work.Pending && given[w.Actor] == "" {
				// The launch was handed out before this attachment, and on
				// attaching the launcher did not report a process. If a start
				// is in progress nevertheless, its report will be refused.
				run, _ := getRun(tx, l.Name)
				if e.left <= 0 {
					o.more = true
					continue
				}
				e.work(run, a, work.Exit{Status: w.Stop.Status, Cause: w.Stop.Reason})
				continue
			}
			if todo == work.ToStop {
				o.Stop = append(o.Stop, StopOrder{a, *w.Stop})
				continue
			}
			if w.HandedOut() {
				replaced = append(replaced, cut{w.Session, errReplaced})
			}
			launch, session := s.openLaunch(tx, a, w, l)
			opened = append(opened, session)
			o.Launch = append(o.Launch, launch)
		}
		if ctx.Err() != nil {
			return errOrdersWithdrawn // nobody reads the answer, so the orders are not given
		}
		d, _ = work.RunOf(tx, l.Name)
		o.Unfinished = d.Unfinished
		// This happens before the commit. A later transaction that ends one of
		// these actors then finds its session kept open, and ends that.
		for _, id := range opened {
			s.launchers.KeepOpen(id)
		}
		return nil
	})
	if err != nil {
		s.launchers.UnkeepOpen(opened...)
		return Orders{}, err
	}
	s.cutOff(replaced...)
	return o, nil
}

// errReplaced is the cause when a session ends because its order was given
// again.
var errReplaced = errors.New("its launcher was told again to start this actor")

// depth returns how many levels an actor is below the root.
func depth(a Actor) int {
	if a.Role == Root {
		return 0
	}
	return strings.Count(a.Path, Separator) + 1
}

// openLaunch makes the token of an actor and the session that is kept open for
// its process. Those that were made before, for a launcher that never said
// that it started one, are void.
func (s *State) openLaunch(tx engine.Tx, a Actor, w work.Work, l *work.Launcher) (o Launch, session uuid.UUID) {
	if w.HandedOut() {
		if before, ok := rows.Get[sessionRecord](tx, sessionKey(w.Session)); ok {
			tx.Delete(sessionKey(w.Session))
			noteSession(tx, a, w.Session, event.SessionEnded, errReplaced.Error())
			rows.Put(tx, endingSession+string(w.Session[:]), before, a.ID)
		}
	}
	o = Launch{Life: w.Life}
	o.Order, _ = work.OrderOf(tx, a.ID)
	o.Token, a.TokenHash = s.opts.Partition.newSecret(tokenMark, a.ID)
	putActor(tx, a)
	o.Actor = a
	record := sessionRecord{ID: uuid.New(), Actor: a.ID}
	o.Handle, record.Secret = s.opts.Partition.newSecret(handleMark, record.ID)
	putSession(tx, record)
	noteSession(tx, a, record.ID, event.SessionBegan, "launched")
	work.HandOut(tx, w, record.ID, l)
	return o, record.ID
}
