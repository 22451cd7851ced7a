// Package exit turns the error of a command into a message and an exit code.
// Commands return errors made here; only main reports them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// Exit codes.
const (
	OK          = 0
	Failed      = 1 // or refused
	Misused     = 2
	Interrupted = 130
)

// A usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func Usage(err error) error { return usageError{err} }

func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// A Hinted error has a hint about what to do next.
type Hinted struct {
	error
	Hint string
}

func (e Hinted) Unwrap() error { return e.error }

func Hint(err error, format string, args ...any) error {
	return Hinted{err, fmt.Sprintf(format, args...)}
}

// ErrReported ends a command that has already printed its error.
var ErrReported = errors.New("reported")

// Reported ends a command that has already printed err, with the exit code of err.
func Reported(err error) error {
	if with, ok := errors.AsType[exitWith](err); ok {
		return Code(with.code)
	}
	return ErrReported
}

// A Code ends a command with an exit code and without a message.
type Code int

func (c Code) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// An exitWith is an error with its own exit code.
type exitWith struct {
	error
	code int
}

func (e exitWith) Unwrap() error { return e.error }

// WithCode returns err with the exit code for it.
func WithCode(err error, code int) error { return exitWith{err, code} }

// Report prints err once and returns the exit code. usage is the hint for a
// command that was called wrongly.
func Report(ctx context.Context, stderr io.Writer, usage string, err error) int {
	var (
		wrong  usageError
		advice Hinted
		code   Code
		with   exitWith
	)
	switch {
	case err == nil:
		return OK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, ErrReported):
		return Failed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "leasehold: interrupted")
		return Interrupted
	}
	p := terminal.PaintFor(stderr)
	fmt.Fprintf(stderr, "%s %s\n", p.Red("leasehold:"), terminal.Lines(stderr, err.Error()))
	if !errors.As(err, &advice) {
		advice.Hint = SystemHint(err)
	}
	if advice.Hint != "" {
		fmt.Fprintf(stderr, "%s %s\n", p.Bold("hint:"), terminal.Lines(stderr, advice.Hint))
	}
	if errors.As(err, &with) {
		return with.code
	}
	if !errors.As(err, &wrong) {
		return Failed
	}
	if advice.Hint == "" {
		fmt.Fprintf(stderr, "%s %s\n", p.Bold("hint:"), usage)
	}
	return Misused
}
