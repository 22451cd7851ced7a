package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // or refused
	exitUsage       = 2
	exitInterrupted = 130
)

// A usageError is a mistake in how the command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usage(err error) error { return usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// A hinted error says what to do next.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

func hint(err error, format string, args ...any) error {
	return hinted{err, fmt.Sprintf(format, args...)}
}

// errReported ends a command that has already said why.
var errReported = errors.New("reported")

// An exitCode ends a command, which has said what there is to say, with it.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// An exitWith is an error that ends its command with a code of its own.
type exitWith struct {
	error
	code int
}

func (e exitWith) Unwrap() error { return e.error }

// report says what went wrong, once, and returns the exit code.
func report(ctx context.Context, stderr io.Writer, err error) int {
	var (
		wrong  usageError
		advice hinted
		code   exitCode
		with   exitWith
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, errReported):
		return exitFailed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "leasehold: interrupted")
		return exitInterrupted
	}
	p := paintFor(stderr)
	fmt.Fprintf(stderr, "%s %v\n", p.red("leasehold:"), err)
	if errors.As(err, &advice) {
		fmt.Fprintf(stderr, "%s %s\n", p.bold("hint:"), advice.hint)
	}
	if errors.As(err, &with) {
		return with.code
	}
	if !errors.As(err, &wrong) {
		return exitFailed
	}
	if advice.hint == "" {
		fmt.Fprintf(stderr, "%s leasehold --help, or --help after any command\n", p.bold("hint:"))
	}
	return exitUsage
}
