package project_test

import (
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/project"
)

func TestTheLastPatternThatFitsDecides(t *testing.T) {
	for _, c := range []struct {
		paths string // separated by spaces
		file  string
		want  bool
	}{
		{"", "a/b.go", true},
		{"**", "a/b.go", true},
		{"*.go", "a/b.go", true},
		{"*.go", "a/b.ts", false},
		{"!docs/**", "docs/a", false},
		{"!docs/**", "docs", false},
		{"!docs/**", "src/docs/a", true},
		{"** !docs/** docs/keep.md", "docs/keep.md", true},
		{"src/*.go", "src/a/b.go", false},
		{"src/**/b.go", "src/b.go", true},
		{"src/**/b.go", "src/a/b/b.go", true},
		{"src/**/a/b.go", "src/a/a/b.go", true},
		{"**/a/**/b/c", "a/b/a/x/b/b/c", true},
		{"**/a/**/b/c", "a/b/a/x/b/c/d", false},
		{"a/**/**", "a", true},
		{"a/**/*", "a", false},
	} {
		if got := (project.Guard{Paths: strings.Fields(c.paths)}).Guards(c.file); got != c.want {
			t.Errorf("%q guards %s: %v", c.paths, c.file, got)
		}
	}
}

// Whoever clones a repository gets its settings, too. If a pattern took exponential time,
// this test would never end.
func TestNoPatternKeepsTheGuardBusy(t *testing.T) {
	g := project.Guard{Paths: []string{strings.Repeat("**/a/", 60) + "b"}}
	if g.Guards(strings.Repeat("a/", 200) + "c") {
		t.Errorf("%v guards c", g.Paths)
	}
}
