package main

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A table is text in columns, for people.
type table struct {
	head []string
	rows []row
}

type row struct {
	cells []string
	dim   bool
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, row{cells: cells}) }

// render is the table with its columns in line, in colours or without.
func (t *table) render(p paint) string {
	all := append([]row{{cells: t.head}}, t.rows...)
	widths := make([]int, len(t.head))
	for _, r := range all {
		for i, c := range r.cells {
			r.cells[i] = printable(c)
			widths[i] = max(widths[i], utf8.RuneCountInString(r.cells[i]))
		}
	}
	var b strings.Builder
	for i, r := range all {
		line := r.line(widths)
		switch {
		case i == 0:
			line = p.bold(line)
		case r.dim:
			line = p.dim(line)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

func (r row) line(widths []int) string {
	var b strings.Builder
	for i, c := range r.cells {
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return strings.TrimRight(b.String(), " ")
}

// printable keeps what agents wrote from speaking to the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}

// clip shortens a text to n runes.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
