package main

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/tools/go/analysis"
)

// A test that drops an error fails at what it looks at next; it closes bodies in helpers
// and at its clean-up, where the check does not look; and it switches on the type of an
// error that it made itself.
var notInTests = []string{"errcheck", "bodyclose", "errorlint"}

var nolint = regexp.MustCompile(`^//nolint:(\w+) // \S`)

var (
	mu   sync.Mutex
	kept = map[token.Pos]bool{} // comments that have kept something from being reported
)

// filter keeps check from reporting what a comment or notInTests excludes.
func filter(check *analysis.Analyzer) {
	run := check.Run
	check.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(found analysis.Diagnostic) {
			at := pass.Fset.Position(found.Pos)
			if strings.HasSuffix(at.Filename, "_test.go") && slices.Contains(notInTests, check.Name) {
				return
			}
			for comment := range comments(pass) {
				to := pass.Fset.Position(comment.Pos())
				if m := nolint.FindStringSubmatch(comment.Text); m != nil && m[1] == check.Name && to.Line == at.Line && to.Filename == at.Filename {
					mu.Lock()
					defer mu.Unlock()
					kept[comment.Pos()] = true
					return
				}
			}
			found.Message += " (" + check.Name + ")"
			report(found)
		}
		return run(pass)
	}
}

// suppression reports comments that give no reason, and those that keep nothing from being reported.
func suppression(checks []*analysis.Analyzer) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:     "nolint",
		Doc:      "reports comments that suppress other checks without need or without a reason",
		Requires: checks, // so it runs after them
		Run: func(pass *analysis.Pass) (any, error) {
			for comment := range comments(pass) {
				switch {
				case !strings.HasPrefix(strings.TrimLeft(comment.Text, "/ "), "nolint"):
				case !nolint.MatchString(comment.Text):
					pass.ReportRangef(comment, "write //nolint:CHECK // why (nolint)")
				case !kept[comment.Pos()]:
					pass.ReportRangef(comment, "this check finds nothing here: remove the comment (nolint)")
				}
			}
			return nil, nil
		},
	}
}

func comments(pass *analysis.Pass) func(yield func(*ast.Comment) bool) {
	return func(yield func(*ast.Comment) bool) {
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, comment := range group.List {
					if !yield(comment) {
						return
					}
				}
			}
		}
	}
}
