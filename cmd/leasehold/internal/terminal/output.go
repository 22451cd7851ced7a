package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// An Output is a file that remembers whether a write to it has failed. So a command that
// prints need not look at each write: what is lost, as on a full disk, is noticed at its
// end.
//
// On a terminal it escapes the control characters of C1 and those that are invisible or
// change the order of a text. No command prints them itself, and JSON may have them
// in the texts of agents; the escape is the one of JSON.
type Output struct {
	file   *os.File
	screen bool
	failed atomic.Pointer[error]
}

func NewOutput(f *os.File) *Output { return &Output{file: f, screen: isatty.IsTerminal(f.Fd())} }

func (o *Output) Write(p []byte) (int, error) {
	shown := p
	if o.screen {
		shown = escaped(p)
	}
	n, err := o.file.Write(shown)
	if n == len(shown) {
		n = len(p)
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) { // a reader that has read enough loses nothing
		o.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// escaped returns a text with the characters escaped that Output says.
func escaped(text []byte) []byte {
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	var b []byte
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if hidden(r) {
			for _, unit := range utf16.Encode([]rune{r}) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		} else {
			b = append(b, text[:size]...) // of a rune that was cut in two, too
		}
		text = text[size:]
	}
	return b
}

func hidden(r rune) bool {
	return r >= 0x7f && r < 0xa0 || r > 0xa0 && unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
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
