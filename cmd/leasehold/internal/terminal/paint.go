// Package terminal formats text for people: colours, tables, durations and a
// screen that is redrawn in place.
package terminal

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-isatty"
	"golang.org/x/sys/unix"
)

// A Paint describes the output: its width, and whether it shows colours. The
// zero Paint has no colours and an unlimited width.
type Paint struct {
	On    bool
	Width int // 0: unlimited
}

// PaintFor returns the paint for output to w.
func PaintFor(w io.Writer) Paint {
	return Paint{Redraws(w) && os.Getenv("NO_COLOR") == "", widthOf(w)}
}

// widthOf returns the width for output to w: that of a terminal, or else
// COLUMNS, or else 0.
func widthOf(w io.Writer) int {
	if f, ok := FileOf(w); ok {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
			return int(size.Col)
		}
	}
	columns, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil {
		return 0
	}
	return max(0, columns)
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
	f, ok := FileOf(w)
	return ok && isatty.IsTerminal(f.Fd())
}

// Redraws reports whether w is a terminal that can draw over what it shows. Nothing is
// known of one without TERM.
func Redraws(w io.Writer) bool {
	term := os.Getenv("TERM")
	return Is(w) && term != "" && term != "dumb"
}

// Line makes a text one line that is safe for w.
func Line(w io.Writer, text string) string {
	if Is(w) {
		return Printable(text)
	}
	return oneLine.Replace(text)
}

// oneLine replaces what would begin a line that looks like another one of the command.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// Lines makes a text of several lines safe for w.
func Lines(w io.Writer, text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(w, strings.ReplaceAll(line, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}
