// Package terminal formats text for people: colours, tables, durations and a
// screen that is redrawn in place.
package terminal

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// A Paint colours text for a terminal. The zero paint leaves it as it is.
type Paint struct{ On bool }

// PaintFor is the paint for what is written to w.
func PaintFor(w io.Writer) Paint {
	return Paint{Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p Paint) Bold(s string) string { return p.code("1", s) }
func (p Paint) Dim(s string) string  { return p.code("2", s) }
func (p Paint) Red(s string) string  { return p.code("31", s) }

func (p Paint) code(code, s string) string {
	if !p.On {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Line is a line of text as w can bear it.
func Line(w io.Writer, text string) string {
	if Is(w) {
		return Printable(text)
	}
	return text
}
