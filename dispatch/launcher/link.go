package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

const (
	redialPause = 100 * time.Millisecond

	// patience is how long a daemon may be away. Agents wait for it as long as
	// their clients allow; without a daemon nobody holds anything.
	patience = 60 * time.Second

	// patienceElsewhere is how long a server elsewhere may be. It gives up a launcher
	// that is away after 30 s, and releases what its agents hold: they end before.
	patienceElsewhere = 20 * time.Second

	// lastPatience is how long it may be away once the run has been killed, or was
	// interrupted and has no process left.
	lastPatience = 3 * time.Second

	// shortCalls is the largest number of simultaneous calls besides the one
	// that waits for orders. It is well below the limit of a connection.
	shortCalls = 64
)

// ErrDaemonGone ends a run whose daemon did not answer in time.
var ErrDaemonGone = errors.New("the daemon stayed away")

// A connection is what a link needs of a [client.Client].
type connection interface {
	Call(ctx context.Context, tool string, args any) (client.Answer, error)
	Close() error
}

// A link is a connection to the daemon that is replaced when it is lost. A call
// that breaks off, or that the daemon cannot serve at present, is made again on
// the next connection, so calls must tolerate being made twice. A daemon that stands
// still counts as away. When the daemon has been away for too long, every call fails at
// once: the run is over, and no report waits for it again.
type link struct {
	dial     func(context.Context) (connection, error)
	attach   func(context.Context, connection) error // first on every connection but the first
	told     func(lost bool)                         // of every loss and return
	patience time.Duration
	slots    chan struct{}
	hurry    <-chan struct{} // closed: lastPatience
	hurried  func()          // of each wait that this makes shorter

	turn chan struct{} // contains a token; its taker may use the fields below
	c    connection
	gone error // why the daemon was given up, or nil
}

func newLink(dial func(context.Context) (connection, error), hurry <-chan struct{}) *link {
	l := &link{
		dial: dial, attach: func(context.Context, connection) error { return nil }, told: func(bool) {}, hurried: func() {},
		patience: patience, slots: make(chan struct{}, shortCalls), hurry: hurry, turn: make(chan struct{}, 1),
	}
	l.turn <- struct{}{}
	return l
}

// open makes the first connection, in one attempt, and returns at once why that
// failed.
func (l *link) open(ctx context.Context) error {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	c, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.c = c
	return nil
}

// call makes a call and decodes its object into answer, unless that is nil. A
// refusal is returned as a [*client.Refusal].
func (l *link) call(ctx context.Context, tool string, args, answer any) error {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return l.served(ctx, true, tool, args, answer)
}

// wait is call for a call that waits: it takes no slot, and may take long.
func (l *link) wait(ctx context.Context, tool string, args, answer any) error {
	return l.served(ctx, false, tool, args, answer)
}

// served makes a call until it is served. The answer to a short one must come within the
// patience.
func (l *link) served(ctx context.Context, short bool, tool string, args, answer any) error {
	var unserved time.Time // since when the daemon cannot serve the call
	for {
		c, err := l.connected(ctx)
		if err != nil {
			return err
		}
		answered, stop := ctx, func() {}
		if short {
			answered, stop = l.patient(ctx)
		}
		got, err := c.Call(answered, tool, args)
		stop()
		var refusal *client.Refusal
		switch {
		case err == nil && answer == nil:
			return nil
		case err == nil:
			if err := json.Unmarshal(got.Object, answer); err != nil {
				return fmt.Errorf("the answer of %s cannot be read: %w", tool, err)
			}
			return nil
		case errors.As(err, &refusal) && !refusal.Passing():
			return err
		case refusal != nil && refusal.Code == "LIMIT" && !short: // too many calls wait at present
			unserved = time.Time{}
		case refusal != nil && unserved.IsZero():
			unserved = time.Now()
		case refusal != nil && time.Since(unserved) >= l.patience:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if refusal == nil || refusal.Code == "UNAVAILABLE" { // it broke, or perhaps its run goes to another server
			l.drop(c)
		}
		if refusal != nil {
			select {
			case <-time.After(redialPause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// connected returns the connection. If necessary, the first caller makes a new
// one, and the others wait for it, each as long as its ctx allows.
func (l *link) connected(ctx context.Context) (connection, error) {
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.c != nil || l.gone != nil {
		return l.c, l.gone
	}
	c, err := l.redial(ctx)
	if err != nil {
		if ctx.Err() == nil { // otherwise only this caller has given up
			l.gone = err
		}
		return nil, err
	}
	l.c = c
	l.told(false)
	return c, nil
}

// patient returns a context that ends with [ErrDaemonGone] when a daemon has been away
// for too long.
func (l *link) patient(ctx context.Context) (within context.Context, stop func()) {
	within, giveUp := context.WithCancelCause(ctx)
	timer := time.AfterFunc(l.patience, func() { giveUp(ErrDaemonGone) })
	select {
	case <-l.hurry:
		timer.Reset(lastPatience)
	default:
		go func() { // ends with stop
			select {
			case <-l.hurry:
				timer.Reset(lastPatience)
				l.hurried()
			case <-within.Done():
			}
		}()
	}
	return within, func() {
		giveUp(nil)
		timer.Stop()
	}
}

// redial tries until there is a connection, the daemon does not let the launcher attach, or it
// has been away for too long.
func (l *link) redial(ctx context.Context) (connection, error) {
	ctx, stop := l.patient(ctx)
	defer stop()
	for {
		c, err := l.dial(ctx)
		if err == nil {
			if err = l.attach(ctx, c); err == nil {
				return c, nil
			}
			_ = c.Close() // it is of no use
		}
		if refused(err) {
			return nil, err
		}
		select {
		case <-time.After(redialPause):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(err, cause) {
				return nil, fmt.Errorf("%w: %w", cause, err)
			}
			return nil, err
		}
	}
}

// refused reports whether a daemon does not let the launcher attach.
func refused(err error) bool {
	refusal, ok := errors.AsType[*client.Refusal](err)
	return ok && !refusal.Passing()
}

// drop closes a connection that has broken.
func (l *link) drop(c connection) {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	if l.c == c {
		l.c = nil
		_ = c.Close() // it has broken
		l.told(true)
	}
}

func (l *link) close() {
	<-l.turn
	defer func() { l.turn <- struct{}{} }()
	if l.c != nil {
		_ = l.c.Close() // nothing is under way
		l.c = nil
	}
}
