package book

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// timeless are the packages that tell times of leases and tasks. They have them
// from the clocks of a transaction: any other is a different one after a sleep, a
// restart or a step.
var timeless = []string{
	"registry", "queue", "kvstore", "layer", "engine/call",
	"dispatch", "dispatch/work", "dispatch/mail", "dispatch/rows", "dispatch/metrics",
	"dispatch/server/api", "dispatch/server/page", "dispatch/server/tools",
}

func TestTimesComeFromTheTransaction(t *testing.T) {
	for _, dir := range timeless {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no package %s: %v", dir, err)
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
				t.Errorf("%s: take the time from the transaction: tx.Now() for durations, tx.Wall() for instants that people read", call)
			}
		}
	}
	// The test itself sees what it is to see.
	const wrong = "package p\nimport clock \"time\"\nvar a, b = clock.Now(), clock.Since(clock.Time{})\nvar c = clock.Until"
	if found := clocksRead(t, "wrong.go", wrong); len(found) != 3 {
		t.Errorf("found %v, want three", found)
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
		if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains([]string{"Now", "Since", "Until"}, s.Sel.Name) {
			if x, ok := s.X.(*ast.Ident); ok && name != "" && x.Name == name {
				found = append(found, set.Position(s.Pos()).String()+" calls time."+s.Sel.Name)
			}
		}
		return true
	})
	return found
}
