package terminal

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Table is text in columns, for people.
type Table struct {
	Head []string
	Rows []Row
}

type Row struct {
	Cells []string
	Dim   bool
}

func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, Row{Cells: cells}) }

// Render is the table with its columns in line, in colours or without.
func (t *Table) Render(p Paint) string {
	all := append([]Row{{Cells: t.Head}}, t.Rows...)
	widths := make([]int, len(t.Head))
	for _, r := range all {
		for i, c := range r.Cells {
			r.Cells[i] = Printable(c)
			widths[i] = max(widths[i], utf8.RuneCountInString(r.Cells[i]))
		}
	}
	var b strings.Builder
	for i, r := range all {
		line := r.line(widths)
		switch {
		case i == 0:
			line = p.Bold(line)
		case r.Dim:
			line = p.Dim(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (r Row) line(widths []int) string {
	var b strings.Builder
	for i, c := range r.Cells {
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return strings.TrimRight(b.String(), " ")
}

// Printable keeps what agents wrote from speaking to the terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// Clip shortens a text to n runes.
func Clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
