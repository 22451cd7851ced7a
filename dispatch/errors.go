package dispatch

import (
	"errors"
	"fmt"
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

// A DrainingError answers a spawn where an end is in sight.
type DrainingError struct {
	What   string // what ends
	Reason string
}

func (e *DrainingError) Error() string {
	return fmt.Sprintf("%s ends (%s): nothing is spawned any more; finish what you have, report with actor_report, and end", e.What, e.Reason)
}

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
