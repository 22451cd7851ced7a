package book

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ofTheirOwn are the packages below that may read a clock, because they tell no time of a
// lease or task. All others have times from the clocks of a transaction: any other
// clock is a different one after a sleep, a restart or a step.
var ofTheirOwn = map[string]string{
	"dispatch/launcher":    "it times processes, and tells of a run as it goes",
	"dispatch/process":     "it waits for processes to end",
	"dispatch/server":      "it times connections and requests",
	"dispatch/server/fair": "it spreads requests over time",
	"dispatch/traces":      "it times the sending of spans",
	"engine/clock":         "it is the clock",
	"engine/cluster":       "it times the leads of partitions",
	"engine/enginetest":    "it is a test",
	"engine/memory":        "it has the clocks of a transaction",
	"engine/pebble":        "it times the disk",
	"engine/postgres":      "it times the database",
}

func TestTimesComeFromTheTransaction(t *testing.T) {
	var dirs []string
	for _, top := range []string{"registry", "queue", "kvstore", "layer", "engine", "dispatch"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() && e.Name() != "testdata" {
				dir, _ := filepath.Rel("..", path) // both are relative
				dirs = append(dirs, filepath.ToSlash(dir))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for dir := range ofTheirOwn {
		if !slices.Contains(dirs, dir) {
			t.Errorf("no package %s: take it out", dir)
		}
	}
	for _, dir := range dirs {
		if ofTheirOwn[dir] != "" {
			continue
		}
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range clocksRead(t, file, string(text)) {
				if strings.HasSuffix(call, " reads Running of Clock") && dir == "dispatch" && filepath.Base(file) == "clocks.go" {
					continue // for doctor, which compares it with its own
				}
				t.Errorf("%s: take the time from the transaction: tx.Now() for durations, tx.Wall() for instants that people read", call)
			}
		}
	}
	// The test itself sees what it is to see.
	const wrong = "package p\nimport clock \"time\"\nvar a, b = clock.Now(), clock.Since(clock.Time{})\nvar c = clock.Until"
	const machine = "package p\nfunc (s *S) f() { _, _, _ = s.opts.Clock.Wall(), s.Clock.Running(), clock.Running() }"
	for _, text := range []string{wrong, machine} {
		if found := clocksRead(t, "wrong.go", text); len(found) != 3 {
			t.Errorf("found %v, want three", found)
		}
	}
}

// clocksRead says where a file reads a clock.
func clocksRead(t *testing.T, file, text string) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for _, i := range f.Imports {
		if i.Path.Value == `"time"` {
			if name = "time"; i.Name != nil {
				name = i.Name.Name
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			n = call.Fun
		} else if s, ok := n.(*ast.SelectorExpr); !ok || s.Sel.Name == "Running" || s.Sel.Name == "Wall" {
			return true // only a call of these reads a clock
		}
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of := ""
		switch x := s.X.(type) {
		case *ast.Ident:
			of = x.Name
		case *ast.SelectorExpr:
			of = x.Sel.Name
		}
		at := set.Position(s.Sel.Pos()).String()
		switch s.Sel.Name {
		case "Now", "Since", "Until":
			if name != "" && of == name {
				found = append(found, at+" reads time."+s.Sel.Name)
			}
		case "Running", "Wall": // of a clock.Clock, or of package clock
			if strings.EqualFold(of, "clock") {
				found = append(found, at+" reads "+s.Sel.Name+" of "+of)
			}
		}
		return true
	})
	slices.Sort(found)
	return slices.Compact(found)
}
