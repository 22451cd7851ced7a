package terminal

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
)

// An Output is a file that remembers whether a write to it has failed. So a command that
// prints need not look at each write: what is lost, as on a full disk, is noticed at its
// end.
type Output struct {
	file   *os.File
	failed atomic.Pointer[error]
}

func NewOutput(f *os.File) *Output { return &Output{file: f} }

func (o *Output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	if err != nil && !errors.Is(err, syscall.EPIPE) { // a reader that has read enough loses nothing
		o.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Err returns the first error of a write.
func (o *Output) Err() error {
	if err := o.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Interruptible runs a function that reads what a person types, or what another program
// writes. It returns when the context ends, although the read goes on: the process ends
// then, too.
func Interruptible[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() { // ends with the read, or with the process
		value, err := read()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// FileOf returns the file that a writer writes to, if it does so without a buffer.
func FileOf(w io.Writer) (*os.File, bool) {
	if o, ok := w.(*Output); ok {
		return o.file, true
	}
	f, ok := w.(*os.File)
	return f, ok
}
