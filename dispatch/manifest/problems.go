package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/leasehold/leasehold/dispatch/spelling"
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
		if d := spelling.Distance(strings.ToLower(word), k); d < least {
			best, least = k, d
		}
	}
	return best
}
