package dispatch

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/queue"
)

var (
	// ErrUnauthenticated is returned for invalid credentials: a token that is
	// missing, unknown or void.
	ErrUnauthenticated = errors.New("unauthenticated: the token is missing, unknown or void: it was replaced or revoked, or its actor has ended; ask your lead or operator for one")

	// ErrNotFound is returned if a run, layer or actor does not exist. The
	// error that wraps it says which.
	ErrNotFound = errors.New("not found")

	// ErrExists is returned if a name is taken. The error that wraps it says
	// which.
	ErrExists = errors.New("exists already")

	// ErrAgentEnded is returned for a call of a sub-agent that waits when its
	// client says that the sub-agent has ended.
	ErrAgentEnded = errors.New("the sub-agent that made this call has ended, as its client says: its wait is over, and it was granted nothing")

	// ErrNoLauncher is returned by a spawn if the run has no launcher.
	ErrNoLauncher = errors.New("nothing starts processes for this run")
)

// A sessionOverError is returned to a client that resumes a session that has ended.
type sessionOverError struct{}

func (e sessionOverError) Error() string {
	return "unauthenticated: the session has ended: its client was away or stopped for too long, or this daemon has another state" + e.Next()
}

// Next returns the end of the text: what the client can do.
func (sessionOverError) Next() string  { return "; open a new session" }
func (sessionOverError) Unwrap() error { return ErrUnauthenticated }

// A saidError has a text of its own in place of the text of the error it wraps.
type saidError struct {
	error
	text string
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.error }

func say(err error, format string, args ...any) error {
	return &saidError{err, fmt.Sprintf(format, args...)}
}

// A DrainingError is returned by a spawn if the run or the lead is ending.
type DrainingError struct {
	What   string // what ends
	Reason string
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("%s ends (%s): nothing is spawned any more; finish what you have, report with actor_report, and end", e.What, e.Reason)
}

// An EndedError is returned for an actor that has ended, as long as its record
// is kept.
type EndedError struct {
	Path  string
	Run   string
	By    string // path of the actor that ended it; "": nobody else
	Cause string
	At    time.Time        // by the wall clock
	Held  []work.LeaseName // leases and claims it lost when it ended, at most work.MaxLeaseNames
}

func (e *EndedError) Error() string {
	s := fmt.Sprintf("actor %s of run %s has ended", e.Path, e.Run)
	if e.By != "" {
		s += ", by " + e.By
	}
	if e.Cause != "" {
		s += fmt.Sprintf(": %q", e.Cause)
	}
	var leases, claims []string
	for _, l := range e.Held {
		if l.Scope == queue.Scope {
			claims = append(claims, l.Key)
		} else {
			leases = append(leases, strconv.Quote(l.Key))
		}
	}
	switch len(leases) {
	case 0:
	case 1:
		s += "; its lease " + leases[0] + " is released"
	default:
		s += "; its leases " + several(leases) + " are released"
	}
	switch len(claims) {
	case 0:
	case 1:
		s += "; it has lost its claim on task " + claims[0]
	default:
		s += "; it has lost its claims on tasks " + several(claims)
	}
	return s + "; stop working, and connect as another actor if you are told to go on"
}

// several lists two or more names for the text, which is all that a client reads that
// connects again.
func several(names []string) string {
	const most = 10
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// Is makes an EndedError match ErrUnauthenticated, because its credentials are
// void.
func (e *EndedError) Is(target error) bool { return target == ErrUnauthenticated }

// A ForbiddenError says what the caller may not do, and what it may.
type ForbiddenError struct {
	What string
}

func (e *ForbiddenError) Error() string { return "forbidden: " + e.What }

func forbidden(format string, args ...any) error {
	return &ForbiddenError{fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return say(ErrNotFound, "no "+format, args...)
}
