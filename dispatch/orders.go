package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/registry"
)

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
