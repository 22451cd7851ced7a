package main

import (
	"io"
	"os"

	"github.com/mattn/go-isatty"
)

// A paint colours text for a terminal. The zero paint leaves it as it is.
type paint struct{ on bool }

// paintFor is the paint for what is written to w.
func paintFor(w io.Writer) paint {
	return paint{isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p paint) bold(s string) string { return p.code("1", s) }
func (p paint) dim(s string) string  { return p.code("2", s) }
func (p paint) red(s string) string  { return p.code("31", s) }

func (p paint) code(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
