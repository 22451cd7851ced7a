package main

import (
	"cmp"
	"go/token"
	"os"
	"regexp"
	"strings"

	"4d63.com/gocheckcompilerdirectives/checkcompilerdirectives"
	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/alingse/nilnesserr"
	makezero "github.com/ashanbrown/makezero/v2/pkg/analyzer"
	"github.com/breml/bidichk/pkg/bidichk"
	"github.com/charithe/durationcheck"
	"github.com/curioswitch/go-reassign"
	"github.com/golangci/misspell"
	"github.com/golangci/unconvert"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/karamaru-alpha/copyloopvar"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/ldez/usetesting"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"github.com/ykadowak/zerologlint"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/atomicalign"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/cgocall"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/deepequalerrors"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpmux"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/reflectvaluecompare"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/sortslice"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// all are the checks. Not among them, of those that x/tools has: fieldalignment, since
// fields stand in the order in which they are read about; shadow, since an err of its own
// in a small block is clearer than one reused; findcall, which finds nothing by itself; and
// inline, which is for go fix.
func all() []*analysis.Analyzer {
	checks := []*analysis.Analyzer{
		appends.Analyzer, asmdecl.Analyzer, assign.Analyzer, atomic.Analyzer, atomicalign.Analyzer,
		bools.Analyzer, buildtag.Analyzer, cgocall.Analyzer, composite.Analyzer, copylock.Analyzer,
		deepequalerrors.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer,
		framepointer.Analyzer, hostport.Analyzer, httpmux.Analyzer, httpresponse.Analyzer,
		ifaceassert.Analyzer, loopclosure.Analyzer, lostcancel.Analyzer, nilfunc.Analyzer,
		nilness.Analyzer, printf.Analyzer, reflectvaluecompare.Analyzer, shift.Analyzer,
		sigchanyzer.Analyzer, slog.Analyzer, sortslice.Analyzer, stdmethods.Analyzer,
		stdversion.Analyzer, stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer,
		tests.Analyzer, timeformat.Analyzer, unmarshal.Analyzer, unreachable.Analyzer,
		unsafeptr.Analyzer, unusedresult.Analyzer, unusedwrite.Analyzer, waitgroup.Analyzer,

		bidichk.NewAnalyzer(), bodyclose.Analyzer, checkcompilerdirectives.Analyzer(),
		copyloopvar.NewAnalyzer(), durationcheck.Analyzer, unchecked,
		// Causes of contexts are compared by identity: they are ours, and are never
		// wrapped. Some errors are quoted and not wrapped: what they are is for people.
		set(errorlint.NewAnalyzer(), "comparison=false", "errorf=false"),
		ineffassign.Analyzer, makezero.NewAnalyzer(), misspelled, nilnessOfErrors(),
		reassign.NewAnalyzer(), unconverted, neverUsed,
		// The path of a unix socket has about 100 bytes, and t.TempDir takes more for
		// itself where a test has a long name.
		set(usetesting.NewAnalyzer(), "osmkdirtemp=false", "ossetenv=true"),
		zerologlint.Analyzer,
	}
	for _, check := range append(append(staticcheck.Analyzers, simple.Analyzers...), stylecheck.Analyzers...) {
		if !check.Doc.NonDefault || check.Analyzer.Name == "SA9003" {
			checks = append(checks, check.Analyzer)
		}
	}
	return checks
}

func set(check *analysis.Analyzer, flags ...string) *analysis.Analyzer {
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		must(check.Flags.Set(name, value))
	}
	return check
}

func nilnessOfErrors() *analysis.Analyzer {
	check, err := nilnesserr.NewAnalyzer(nilnesserr.LinterSetting{})
	must(err)
	return check
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// mayFail are functions whose errors may be dropped.
var mayFail = []string{
	// A failed write to a client or a terminal shows in the next read of it, or there is
	// nobody left to tell.
	"(*github.com/leasehold/leasehold/dispatch/client.Client).Close",
	"(io.Closer).Close",
	"(net.Conn).Close",
	"(net.Listener).Close",
	"(*os.File).Close",
	"(net.Conn).SetDeadline",
	"(net.Conn).SetReadDeadline",
	"(net.Conn).SetWriteDeadline",
	"(net.Conn).Write",
	"(net/http.ResponseWriter).Write",
	"(*net/http.ResponseController).Flush",
	"(*net/http.ResponseController).SetReadDeadline",
	"(*net/http.ResponseController).SetWriteDeadline",
	"fmt.Fprint",
	"fmt.Fprintf",
	"fmt.Fprintln",
	"golang.org/x/sys/unix.Close",
	"io.WriteString",
	// The process may have ended, which is what was wanted.
	"(*os.Process).Kill",
	// What is left of a temporary directory is the system's to remove.
	"os.RemoveAll",
}

var unchecked = &analysis.Analyzer{
	Name: "errcheck",
	Doc:  "reports errors that are dropped",
	Run: func(pass *analysis.Pass) (any, error) {
		checker := errcheck.Checker{Exclusions: errcheck.Exclusions{
			Symbols:                append(mayFail, errcheck.DefaultExcludedSymbols...),
			SymbolRegexpsByPackage: map[string]*regexp.Regexp{},
			BlankAssignments:       true,
			TypeAssertions:         true,
		}}
		found := checker.CheckPackage(&packages.Package{Fset: pass.Fset, Syntax: pass.Files, Types: pass.Pkg, TypesInfo: pass.TypesInfo}).Unique()
		for _, one := range found.UncheckedErrors {
			report(pass, one.Pos, "the error of "+cmp.Or(one.SelectorName, one.FuncName)+" is dropped")
		}
		return nil, nil
	},
}

// report reports what a check says of a line.
func report(pass *analysis.Pass, at token.Position, message string) {
	for _, file := range pass.Files {
		if tokens := pass.Fset.File(file.FileStart); tokens.Name() == at.Filename {
			pass.Reportf(tokens.LineStart(at.Line), "%s", message)
		}
	}
}

var neverUsed = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "reports what nothing uses",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer}, // which only collects it
	Run: func(pass *analysis.Pass) (any, error) {
		for _, object := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			if object.Kind != "type param" {
				report(pass, object.Position, object.Kind+" "+object.Name+" is unused")
			}
		}
		return nil, nil
	},
}

var misspelled = &analysis.Analyzer{
	Name: "misspell",
	Doc:  "reports words that are often misspelled",
	Run: func(pass *analysis.Pass) (any, error) {
		words := misspell.New()
		words.Compile()
		for _, file := range pass.Files {
			tokens := pass.Fset.File(file.FileStart)
			text, err := os.ReadFile(tokens.Name())
			if err != nil {
				return nil, err
			}
			_, found := words.Replace(string(text))
			for _, word := range found {
				pass.Reportf(tokens.LineStart(word.Line), "%q is misspelled: %q", word.Original, word.Corrected)
			}
		}
		return nil, nil
	},
}

var unconverted = &analysis.Analyzer{
	Name: "unconvert",
	Doc:  "reports conversions to the type that a value has",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, at := range unconvert.Run(pass) {
			report(pass, at, "unnecessary conversion")
		}
		return nil, nil
	},
}
