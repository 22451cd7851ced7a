package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is one error in a manifest.
type Problem struct {
	File         string
	Line, Column int    // from 1
	Key          string // such as run.max_depth; "": no key
	Text         string // what is wrong, what is allowed, what to do
}

func (p Problem) String() string {
	what := p.Text
	if p.Key != "" {
		what = p.Key + " " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, what)
}

// Problems is the error for a manifest that cannot be run. It lists everything
// that is wrong, in the order of the file.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.String()
	}
	return strings.Join(lines, "\n")
}

func (d *document) sorted() Problems {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems
}

// nearest returns the known word that was probably meant: one that begins with
// word, or else one with a similar spelling; "" if there is none.
func nearest(word string, known []string) string {
	for _, k := range known {
		if len(word) > 2 && strings.HasPrefix(k, strings.ToLower(word)) {
			return k
		}
	}
	best, least := "", len(word)/4+2
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the number of letters that must be inserted, deleted, changed or
// swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
