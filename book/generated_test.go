package book

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/dispatch/manifest"
	"github.com/leasehold/leasehold/spotlights"
)

var update = flag.Bool("update", false, "write the generated pages anew")

// The generated pages say what the code says now.
func TestGenerated(t *testing.T) {
	pages := map[string]string{"tools.md": toolReference(t), "manifest.md": manifest.Reference(), "api-routes.md": apiRoutes(t)}
	leasehold := filepath.Join(buildCommand(t), "leasehold")
	for _, s := range spotlights.Stories() {
		tell := told
		if s.Real {
			tell = func(t *testing.T, s spotlights.Story) string { return toldOfProcesses(t, s, leasehold) }
		}
		pages["stories/"+s.Name+".txt"] = tell(t, s)
	}
	pages["stories/index.md"] = storyIndex()
	for name, want := range pages {
		file := filepath.Join("src", filepath.FromSlash(name))
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v; run just docs", err)
			continue
		}
		if line, ok := firstDifference(string(have), want); ok {
			t.Errorf("%s is out of date, run just docs: %s", file, line)
		}
	}
}

func firstDifference(have, want string) (line string, differ bool) {
	h, w := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(h), len(w)) {
		var a, b string
		if i < len(h) {
			a = h[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n  is      %s\n  must be %s", i+1, a, b), true
		}
	}
	return "", have != want
}

// told is a story as it is narrated.
func told(t *testing.T, s spotlights.Story) (text string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		defer d.stop()
		var b strings.Builder
		if err := s.Tell(t.Context(), d, &b); err != nil {
			t.Fatalf("%v, after:\n%s", err, &b)
		}
		text = new(normal).text(b.String())
	})
	return text
}

// toldOfProcesses is a story as it is narrated of real processes, but for how
// long they took.
func toldOfProcesses(t *testing.T, s spotlights.Story, leasehold string) string {
	t.Helper()
	m, err := spotlights.NewMachine(t.Context(), leasehold)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := errors.Join(s.Tell(t.Context(), m, &b), m.Close()); err != nil {
		t.Fatalf("%v, after:\n%s", err, &b)
	}
	return tookPattern.ReplaceAllString(new(normal).text(b.String()), "after a moment")
}

var tookPattern = regexp.MustCompile(`\bafter [0-9.]+m?s\b`)

// storyIndex lists the stories.
func storyIndex() string {
	var b strings.Builder
	b.WriteString("<!-- Generated from package spotlights by `just docs`. Do not edit. -->\n\n")
	b.WriteString("| story | what it shows |\n|---|---|\n")
	for _, s := range spotlights.Stories() {
		fmt.Fprintf(&b, "| `%s` | %s. %s |\n", s.Name, s.Title, escape(upperFirst(s.Promise)))
	}
	return b.String()
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// normal replaces ids, which are random, by others that are not: the same by
// the same.
type normal struct{ seen map[string]string }

// rests are the nanoseconds by which a bubble's clock moves where the server rests after
// long work: how many there are is nothing a page says.
var rests = regexp.MustCompile(`(T\d\d:\d\d:\d\d)\.0{6,}\d+Z`)

var idPattern = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (n *normal) text(s string) string {
	if n.seen == nil {
		n.seen = make(map[string]string)
	}
	s = rests.ReplaceAllString(s, "${1}Z")
	return idPattern.ReplaceAllStringFunc(s, func(id string) string {
		if _, ok := n.seen[id]; !ok {
			k := len(n.seen) + 1
			n.seen[id] = fmt.Sprintf("%08x-%04x-4000-8000-%012x", 0x5ca1ab1e+k*0x01000193, k*0x0107&0xffff, k*0x2545f491)
		}
		return n.seen[id]
	})
}
