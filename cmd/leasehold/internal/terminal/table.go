package terminal

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A Table is text in columns. If the table is too wide, columns are left out by
// their rank or narrowed, and what is missing is marked.
type Table struct {
	Columns []Column
	Rows    []Row
}

// A Column is a column of a table. With zero Rank and Want it is always shown
// in full.
type Column struct {
	Head string
	Rank Rank
	Want int  // columns of a higher rank are left out before it gets narrower than this; 0: its full width
	Bare int  // least width if nothing else can be narrowed; 0: Want
	Left bool // shortened at the start, for example for paths, which differ at their ends

	Optional bool // does not exist if all its cells are empty
}

// A Rank says when a column is left out: the highest rank goes first.
type Rank int

const (
	IfEmpty Rank = iota - 1 // left out only if all its cells are empty
	Always
	Minor // and greater: left out if there is no room, empty columns first
)

type Row struct {
	Cells []Cell
	Dim   bool
}

// A Cell has one text, or a list of texts of which a narrow column shows only
// the first ones.
type Cell struct {
	items []string
	more  int      // number of texts that are not in items
	last  []string // alternatives for a last text that is always shown, the longest first
}

func Text(s string) Cell { return Cell{items: []string{s}} }

// Several returns a cell with the first of a number of items: those that fit into
// maxSeveral columns, but at least one. It is empty if there are none.
func Several(items []string, of int) Cell {
	of = max(of, len(items))
	width := 0
	for i, item := range items {
		if width += Width(item) + len(", "); width > maxSeveral && i > 0 {
			items = items[:i]
			break
		}
	}
	return Cell{items: items, more: of - len(items)}
}

// maxSeveral limits the width of a list in a cell. Otherwise one long list would make
// each line as long.
const maxSeveral = 60

// Last returns the cell with a last text that is never hidden: the longest of
// texts that fits.
func (c Cell) Last(texts ...string) Cell {
	c.last = texts
	return c
}

// empty reports whether a cell shows nothing of interest.
func (c Cell) empty() bool {
	return len(c.items) == 0 && c.last == nil || len(c.items) == 1 && (c.items[0] == "" || c.items[0] == none)
}

// none is shown in an empty cell, so that the other cells stand out.
const none = "-"

func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, Row{Cells: cells}) }

// AddTexts adds a row with one text for each cell.
func (t *Table) AddTexts(texts ...string) { t.Rows = append(t.Rows, TextRow(texts...)) }

func TextRow(texts ...string) (r Row) {
	for _, s := range texts {
		r.Cells = append(r.Cells, Text(s))
	}
	return r
}

// gap is the space between two columns.
const gap = 2

// Render formats the table with its columns aligned, no wider than the paint's
// width.
func (t *Table) Render(p Paint) string {
	lines, left := t.Lines(p)
	return strings.Join(append(lines, left...), "\n") + "\n"
}

// Lines returns the lines of the table, its head first, and notes about columns
// that are left out.
func (t *Table) Lines(p Paint) (lines, left []string) {
	widths, empty, without := t.fit(p.Width)
	head := Row{}
	for _, c := range t.Columns {
		head.Cells = append(head.Cells, Text(c.Head))
	}
	for i, r := range append([]Row{head}, t.Rows...) {
		line := r.line(t.Columns, widths)
		if p.Width > 0 {
			line = Clip(line, p.Width)
		}
		switch {
		case i == 0:
			line = p.Bold(line)
		case r.Dim:
			line = p.Dim(line)
		}
		lines = append(lines, line)
	}
	for _, note := range []struct {
		title string
		heads []string
	}{{"no room for ", without}, {"nothing in ", empty}} {
		if len(note.heads) > 0 {
			for _, line := range Fold(note.title+strings.Join(note.heads, ", "), p.Width) {
				left = append(left, p.Dim(line))
			}
		}
	}
	return lines, left
}

// leftOut is the width of a column that is not shown.
const leftOut = -1

// fit computes the widths of the columns, and names those that are left out:
// empty ones, and those for which there is no room.
func (t *Table) fit(width int) (widths []int, empty, without []string) {
	widths = make([]int, len(t.Columns))
	blank := make([]bool, len(t.Columns))
	for i, c := range t.Columns {
		widths[i], blank[i] = Width(c.Head), true
		for _, r := range t.Rows {
			widths[i] = max(widths[i], Width(r.Cells[i].full()))
			blank[i] = blank[i] && r.Cells[i].empty()
		}
		if c.Optional && blank[i] {
			widths[i] = leftOut
		}
	}
	if width <= 0 {
		return widths, nil, nil
	}
	whole := slices.Clone(widths)
	want, bare := make([]int, len(widths)), make([]int, len(widths))
	for i, c := range t.Columns {
		want[i], bare[i] = widths[i], widths[i]
		if c.Want > 0 {
			want[i] = min(widths[i], max(c.Want, Width(c.Head)))
			bare[i] = want[i]
		}
		if c.Bare > 0 {
			bare[i] = min(want[i], c.Bare)
		}
	}
	var gone []int
	for total(want, widths) > width {
		out := leftOut
		for i, c := range t.Columns {
			if widths[i] == leftOut || c.Rank == Always || c.Rank == IfEmpty && !blank[i] {
				continue
			}
			if out == leftOut || before(c.Rank, blank[i], t.Columns[out].Rank, blank[out]) {
				out = i
			}
		}
		if out == leftOut {
			break
		}
		widths[out] = leftOut
		gone = append(gone, out)
	}
	// After a wide column was left out, narrower ones that were left out before
	// may fit again. The last ones left out matter most, so they come first.
	for _, i := range slices.Backward(gone) {
		if widths[i] = whole[i]; blank[i] || total(want, widths) > width {
			widths[i] = leftOut
		}
	}
	for i, c := range t.Columns {
		switch {
		case widths[i] != leftOut, c.Optional && blank[i]:
		case blank[i]:
			empty = append(empty, c.Head)
		default:
			without = append(without, c.Head)
		}
	}
	t.narrow(widths, want, width)
	t.narrow(widths, bare, width)
	return widths, empty, without
}

// before reports whether a column is left out before another one.
func before(rank Rank, blank bool, other Rank, otherBlank bool) bool {
	if blank != otherBlank {
		return blank
	}
	return rank >= other // of the same rank, the last column goes first
}

// narrow reduces the widths of columns, not below their floors, until they fit:
// the highest rank first, and the widest column of that rank.
func (t *Table) narrow(widths, floors []int, width int) {
	for total(widths, widths) > width {
		from := leftOut
		for i, c := range t.Columns {
			if widths[i] == leftOut || widths[i] <= floors[i] {
				continue
			}
			if from == leftOut || c.Rank > t.Columns[from].Rank || c.Rank == t.Columns[from].Rank && widths[i] > widths[from] {
				from = i
			}
		}
		if from == leftOut {
			return
		}
		widths[from]--
	}
}

// total returns the width of a line with the columns that are shown.
func total(widths, shown []int) int {
	sum := -gap
	for i, w := range widths {
		if shown[i] != leftOut {
			sum += w + gap
		}
	}
	return sum
}

func (r Row) line(columns []Column, widths []int) string {
	var b strings.Builder
	for i, c := range r.Cells {
		if widths[i] == leftOut {
			continue
		}
		text := c.within(widths[i], columns[i].Left && c.items != nil)
		b.WriteString(text)
		b.WriteString(strings.Repeat(" ", widths[i]-Width(text)+gap))
	}
	return strings.TrimRight(b.String(), " ")
}

func (c Cell) full() string {
	last := ""
	if c.last != nil {
		last = c.last[0]
	}
	return c.first(len(c.items), last)
}

// first formats a cell with its first n items, the number of the others, and
// its last text.
func (c Cell) first(n int, last string) string {
	if len(c.items) == 0 && last == "" {
		return none
	}
	return Printable(strings.Join(c.items[:n], ", ")) + c.rest(n, last)
}

func (c Cell) rest(n int, last string) (rest string) {
	if more := len(c.items) - n + c.more; more > 0 {
		rest = fmt.Sprintf(", +%d", more)
	}
	if last != "" {
		rest += ", " + Printable(last)
	}
	if n == 0 {
		rest = strings.TrimPrefix(rest, ", ")
	}
	return rest
}

// within formats a cell for a width: as many items as fit, or one shortened
// item.
func (c Cell) within(width int, left bool) string {
	last := c.last
	if last == nil {
		last = []string{""}
	}
	for n := len(c.items); n > 0 || n == 0 && len(c.items) == 0; n-- {
		for _, text := range last {
			if s := c.first(n, text); Width(s) <= width {
				return s
			}
		}
	}
	shorten := Clip
	if left {
		shorten = ClipLeft
	}
	short := last[len(last)-1]
	if len(c.items) == 0 {
		return Clip(c.first(0, short), width)
	}
	rest := c.rest(1, short)
	if room := width - Width(rest); room > 1 {
		return shorten(Printable(c.items[0]), room) + rest
	}
	return Clip(c.first(1, short), width)
}

// Width returns the number of terminal columns of a text.
func Width(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return ansi.StringWidth(s)
		}
	}
	return len(s) // most texts are ASCII, and a table measures each cell several times
}

// Clip shortens a text to a width, at its end.
func Clip(s string, width int) string { return ansi.Truncate(s, width, "…") }

// ClipLeft shortens a text to a width, at its start.
func ClipLeft(s string, width int) string {
	over := Width(s) - width
	if over <= 0 {
		return s
	}
	for n := over + 1; n < Width(s); n++ { // a wide character at the cut is removed completely
		if cut := ansi.TruncateLeft(s, n, "…"); Width(cut) <= width {
			return cut
		}
	}
	return "…"
}

// Fold breaks a text between words into lines of a width; 0 means unlimited.
func Fold(s string, width int) []string {
	if width <= 0 {
		return []string{s}
	}
	return strings.Split(ansi.Wrap(s, width, ""), "\n")
}
