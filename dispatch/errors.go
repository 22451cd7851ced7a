package dispatch

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/dispatch/work"
)

var (
	// ErrUnauthenticated answers credentials that open nothing: a token
	// missing, unknown, or void since its actor ended.
	ErrUnauthenticated = errors.New("unauthenticated: the token is missing, unknown, or void since its actor ended; ask your lead or operator for one")

	// ErrNotFound answers a run, layer or actor that is not there; the
	// error that wraps it says which.
	ErrNotFound = errors.New("not found")

	// ErrExists answers a name that is taken; the error that wraps it says
	// which.
	ErrExists = errors.New("exists already")

	// ErrNoLauncher answers a spawn where nothing starts processes.
	ErrNoLauncher = errors.New("nothing starts processes for this run")
)

// A saidError says what an error means here. It is that error.
type saidError struct {
	error
	text string
}

func (e *saidError) Error() string { return e.text }
func (e *saidError) Unwrap() error { return e.error }

func say(err error, format string, args ...any) error {
	return &saidError{err, fmt.Sprintf(format, args...)}
}

// A DrainingError answers a spawn where an end is in sight.
type DrainingError struct {
	What   string // what ends
	Reason string
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("%s ends (%s): nothing is spawned any more; finish what you have, report with actor_report, and end", e.What, e.Reason)
}

// An EndedError answers an actor that has ended, as long as its record is kept:
// it is void, and this is why.
type EndedError struct {
	Path  string
	Run   string
	By    string // path of who ended it; "": nobody else
	Cause string
	At    time.Time        // by the wall clock
	Held  []work.LeaseName // what it lost with its end, the first of them
}

func (e *EndedError) Error() string {
	s := fmt.Sprintf("actor %s of run %s has ended", e.Path, e.Run)
	if e.By != "" {
		s += ", by " + e.By
	}
	if e.Cause != "" {
		s += ": " + e.Cause
	}
	switch n := len(e.Held); {
	case n == 1:
		s += fmt.Sprintf("; its lease %q is released", e.Held[0].Key)
	case n > 1:
		s += fmt.Sprintf("; its %d leases are released, %q among them", n, e.Held[0].Key)
	}
	return s + "; stop working, and connect as another actor if you are told to go on"
}

// Is makes an EndedError an ErrUnauthenticated: the credentials open nothing.
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
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrNotFound)
}
