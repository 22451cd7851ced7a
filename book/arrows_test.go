package book

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module  = "github.com/leasehold/leasehold"
	command = "cmd/leasehold/internal/"
)

// arrows are the packages from the top to the bottom, a level each. A package
// imports only what stands below its own level.
var arrows = [][]string{
	{"dispatch/simulation"},  // a test of all below
	{"examples/job-manager"}, // a program as others write it
	{"client/generate"},      // of clients in other languages, from the API
	{"cmd/leasehold"},
	{command + "doctor"},
	{command + "call", command + "daemon", command + "exec", command + "hook", command + "open", command + "setup", command + "shim", command + "story", command + "tree"},
	{command + "guard", command + "view"},
	{command + "logs"},
	{command + "connection"},
	{command + "database"},
	{command + "place"},
	{command + "exit"},
	{command + "manual"}, // of whatever commands there are
	{command + "build", command + "terminal"},
	{"spotlights"},
	{"dispatch/launcher"},
	{"dispatch/manifest"},
	{"dispatch/agent/agenttest"},
	{"dispatch/agent"},
	{"dispatch/client"},
	{"dispatch/server"},
	{"dispatch/server/api", "dispatch/server/page"},
	{"dispatch/server/tools"},
	{"dispatch/server/fair"},
	{"dispatch/server/wire", "dispatch/project", "dispatch/metrics"},
	{"dispatch"},
	{"dispatch/traces"},
	{"dispatch/work", "dispatch/mail", "layer"}, // launched work and messages know nothing of the tree of actors above them
	{"dispatch/rows", "dispatch/process"},
	{"kvstore", "queue"},
	{"registry"},
	{"engine/call", "engine/event"},
	{"engine"},
	{"engine/cluster"},
	{"client"}, // what others import: it knows nothing of the daemon but the API
	{"client/address", "dispatch/spelling", "engine/clock", "engine/jsontext", "engine/record", "engine/traceparent", "registry/filekey"},
}

// keepers implement or test the seam and know nothing else of the project. The
// first is what the stores are for, so they import it.
var keepers = []string{"engine/memory", "engine/pebble", "engine/postgres", "engine/enginetest", "engine/postgres/postgrestest"}

// outside says who may import what is not ours. Tests may: they speak the
// protocol and look at what lies on the disk.
var outside = []struct {
	prefix string
	by     []string
}{
	{"github.com/mark3labs/mcp-go/mcp", []string{"dispatch/server", "dispatch/server/tools", "dispatch/client", command + "call"}},
	{"github.com/mark3labs/mcp-go", nil}, // its other packages compile JSON schemas when a process starts, every hook too
	{"charm.land/bubbletea", []string{command + "view"}},
	{"github.com/cockroachdb/pebble", []string{"engine/pebble"}},
	{"github.com/prometheus", []string{"dispatch/metrics"}},
	{"go.opentelemetry.io", []string{"engine/traceparent", "dispatch/traces", "client", command + "daemon"}},
	{"github.com/modelcontextprotocol", []string{"dispatch/agent/agenttest"}}, // whose packages are tests
}

// Imports run down the list and never up, in tests too, but that a test opens
// an engine, and what is served is tested from the client's end.
func TestImportsRunDown(t *testing.T) {
	for file, imports := range importsOfAll(t) {
		dir := path.Dir(file)
		if dir == "book" || strings.HasPrefix(dir, ".ci/") {
			continue // they see everything and nobody sees them; see below
		}
		test := strings.HasSuffix(file, "_test.go")
		for _, imported := range imports {
			inside, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case !ours && !test:
				if by, ruled := mayImport(imported); ruled && !slices.Contains(by, dir) {
					t.Errorf("%s imports %s, which only %v may", file, imported, by)
				}
			case ours && !downward(dir, inside, test):
				t.Errorf("%s imports %s, which does not stand below %s", file, inside, dir)
			}
		}
	}
}

func mayImport(imported string) (by []string, ruled bool) {
	for _, o := range outside {
		if imported == o.prefix || strings.HasPrefix(imported, o.prefix+"/") {
			return o.by, true
		}
	}
	return nil, false
}

func downward(from, to string, test bool) bool {
	switch {
	case test && (from == to || slices.Contains(keepers, to)):
		return true
	case test && strings.HasPrefix(from, "dispatch/") && strings.HasPrefix(to, "dispatch/"):
		return true // what they serve is tested from the client's end
	case test && from == "client" && (to == "dispatch" || strings.HasPrefix(to, "dispatch/")):
		return true // and the client against what it is served
	case slices.Contains(keepers, from):
		return level(to) >= level("engine") || from != "engine/enginetest" && to == keepers[0] && from != to
	case slices.Contains(keepers, to):
		// Only those who start a daemon choose an engine.
		return !strings.HasSuffix(to, "test") && (from == command+"daemon" || from == command+"database" || from == command+"doctor" || from == "spotlights")
	}
	return level(from) >= 0 && level(to) > level(from)
}

func level(pkg string) int {
	return slices.IndexFunc(arrows, func(l []string) bool { return slices.Contains(l, pkg) })
}

// Every package has its place in the list: a new one must be given one.
func TestEveryPackageHasALevel(t *testing.T) {
	for file := range importsOfAll(t) {
		dir := path.Dir(file)
		if level(dir) < 0 && !slices.Contains(keepers, dir) && dir != "book" && !strings.HasPrefix(dir, ".ci/") {
			t.Errorf("%s: package %s has no place among the arrows", file, dir)
		}
	}
}

// Programs use package client. The packages that they could take for it say that they
// are not public.
func TestOnlyTheClientIsPublic(t *testing.T) {
	for _, dir := range []string{
		"engine", "engine/memory", "engine/pebble", "engine/postgres", "registry", "kvstore", "queue", "layer", "dispatch", "dispatch/client", "client",
	} {
		want := "is not public: programs use package client"
		if dir == "client" {
			want = "It is the public package of this module."
		}
		if !strings.Contains(docOf(t, dir), want) {
			t.Errorf("the documentation of package %s does not say that it %s", dir, want)
		}
	}
}

func TestEveryPackageHasADoc(t *testing.T) {
	for file := range importsOfAll(t) {
		if dir := path.Dir(file); !strings.HasSuffix(file, "_test.go") && docOf(t, dir) == "" {
			t.Errorf("%s: package %s does not say what it is for", file, dir)
		}
	}
}

// docOf returns the documentation of a package, in one line.
func docOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			said.WriteString(f.Doc.Text())
		}
	}
	return strings.Join(strings.Fields(said.String()), " ")
}

// The README lists the packages in the order of their imports: none imports one of a row above it.
func TestTheREADMEListsPackagesAsImportsRun(t *testing.T) {
	row := make(map[string]int)
	for i, cells := range table(t, "README.md", "package") {
		for _, dir := range spans(cells[0]) {
			row[dir] = i
		}
	}
	for file, imports := range importsOfAll(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		from, listed := row[path.Dir(file)]
		for _, imported := range imports {
			dir, _ := strings.CutPrefix(imported, module+"/")
			if to, too := row[dir]; listed && too && to < from {
				t.Errorf("the README lists %s above %s, which imports it", dir, path.Dir(file))
			}
		}
	}
}

// importsOfAll reads every Go file of the repository, of whatever system. Go
// notices that a test has read files: it runs anew where one has changed.
func importsOfAll(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	root := filepath.FromSlash("..")
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if skipped := path.Base(rel); rel != "." && rel != ".ci" && (strings.HasPrefix(skipped, ".") || skipped == "testdata" || skipped == "node_modules" || rel == "dist" || strings.HasPrefix(rel, "dist.")) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && rel != "." {
				return fs.SkipDir // another module, which imports what it likes and nobody imports
			}
			return nil
		}
		if path.Ext(rel) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		all[rel] = nil
		for _, spec := range f.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all[rel] = append(all[rel], imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("no Go files found")
	}
	return all
}
