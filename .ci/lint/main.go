// Lint is what go vet runs in place of its own checks: those, all that x/tools has
// besides, staticcheck, and some others. They find mistakes rather than tastes.
//
//	go build -C .ci/lint -o FILE && go vet -vettool=FILE PACKAGE...
//
// A comment at the end of a line keeps what a check finds there from being reported:
//
//	//nolint:CHECK // why
package main

import (
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/facts/nilness"
	"honnef.co/go/tools/analysis/facts/purity"
	"honnef.co/go/tools/staticcheck/sa5012"
)

func main() {
	if onlyFacts() {
		unitchecker.Main(ctrlflow.Analyzer, deprecated.Analyzer, nilness.Analysis, printf.Analyzer, purity.Analyzer, sa5012.Analyzer)
	}
	checks := all()
	for _, check := range checks {
		filter(check)
	}
	unitchecker.Main(append(checks, suppression(checks))...)
}

// onlyFacts reports whether go vet asks about a package that others import, and wants to
// know only what the checks of those need to know. It takes half the time then.
func onlyFacts() bool {
	file := os.Args[len(os.Args)-1]
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	var asked struct{ VetxOnly bool }
	text, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(text, &asked) == nil && asked.VetxOnly
}
