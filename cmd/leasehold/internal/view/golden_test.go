package view_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

var update = flag.Bool("update", false, "write the golden files")

// idPart finds ids and their ends, which differ from run to run.
var idPart = regexp.MustCompile(`…?[0-9a-f]*-?[0-9a-f]*-?[0-9a-f]*-?[0-9a-f]{0,4}-?[0-9a-f]{8,12}\b`)

// steady is a text in which ids have no digits.
func steady(text string) string {
	return idPart.ReplaceAllStringFunc(text, func(id string) string {
		return regexp.MustCompile(`[0-9a-f]`).ReplaceAllString(id, "x")
	})
}

// What a daemon tells is drawn at each width as it was, and no line is wider.
func TestViewsAtThreeWidths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		d.busyRun("release-42")
		c := d.connect(server.Hello{Operator: true})
		for _, v := range []struct {
			name string
			keep []string // columns that are there at every width
		}{
			{"leases", []string{"LEASE", "HOLDER", "EXPIRES", "WAITING"}},
			{"tree", []string{"ACTOR", "STATE", "HOLDS", "WAITS FOR"}},
			{"queue", []string{"QUEUE", "READY"}},
			{"queue-list", []string{"TASK", "QUEUE", "STATE", "HOLDER", "EXPIRES"}},
			{"queue-dead", []string{"TASK", "QUEUE", "ATTEMPTS"}},
			{"runs", []string{"RUN", "STATE"}},
		} {
			var all bytes.Buffer
			for _, width := range []int{60, 80, 200} {
				text, err := view.Drawn(t.Context(), c, v.name, "release-42", width)
				if err != nil {
					t.Fatalf("%s: %v", v.name, err)
				}
				head, _, _ := strings.Cut(text, "\n")
				if v.name == "tree" {
					_, rest, _ := strings.Cut(text, "\n")
					head, _, _ = strings.Cut(rest, "\n")
				}
				for _, column := range v.keep {
					if !strings.Contains(head, column) {
						t.Errorf("%s at %d has no %s:\n%s", v.name, width, column, text)
					}
				}
				for line := range strings.Lines(text) {
					if w := terminal.Width(strings.TrimSuffix(line, "\n")); w > width {
						t.Errorf("%s at %d has a line of %d:\n%s", v.name, width, w, line)
					}
				}
				fmt.Fprintf(&all, "%s\n%s\n", strings.Repeat("·", width), steady(text))
			}
			sameAsGolden(t, v.name, all.Bytes())
		}
	})
}

func TestAKeyThatIsReservedIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		d.actor("r", "", "lead", dispatch.Root)
		d.reserved("r", "deploy")
		text, err := view.Drawn(t.Context(), d.connect(server.Hello{Operator: true}), "leases", "r", 100)
		if err != nil || !regexp.MustCompile(`(?m)^deploy +run +reserved for W2 +5s`).MatchString(text) {
			t.Errorf("leases shows\n%s%v", text, err)
		}
		behind := d.actor("r", "root", "W3", dispatch.Worker)
		behind.waits("run_lease_acquire", args{"key": "deploy", "wait_secs": 2})
		text, err = view.Drawn(t.Context(), d.connect(server.Hello{Operator: true}), "tree", "r", 120)
		for _, name := range []string{"W2", "W3"} {
			if err != nil || !regexp.MustCompile(name+` .*deploy \(reserved for W2\)`).MatchString(text) {
				t.Errorf("of %s tree shows\n%s%v", name, text, err)
			}
		}
		m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "r", 120, 20)
		m.Look()
		m.Press("2")
		has(t, m, "2 leases 1", "reserved for W2 ")
		m.Press("x")
		has(t, m, "nobody holds it; it is reserved for W2, which is first in line")
		m.Press("enter")
		has(t, m, "nobody; reserved for W2, which is first in line, for ")
		m.Press("esc", "1", "/W3", "enter", "enter")
		has(t, m, "deploy, reserved for W2")
	})
}

// sameAsGolden compares what is drawn with the file of that name, or writes the
// file anew.
func sameAsGolden(t *testing.T, name string, drawn []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(golden, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(drawn, want) {
		t.Errorf("%s is drawn\n%s\nand was\n%s", golden, drawn, want)
	}
}

// A list may have megabytes. Its text would repeat it, and these commands read the object.
func TestAnAnswerForAViewHasItsListOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		d.busyRun("r")
		c := d.connect(server.Hello{Operator: true})
		of := args{"run": "r"}
		whole, err := c.Call(t.Context(), "operator_leases", of)
		if err != nil || !strings.Contains(whole.Text, "\n") {
			t.Fatalf("%q, %v", whole.Text, err)
		}
		brief, err := c.Call(client.WithoutNotices(t.Context()), "operator_leases", of)
		if err != nil || brief.Text != whole.Line() || !bytes.Equal(brief.Object, whole.Object) {
			t.Errorf("the text is %q, the object %s, %v", brief.Text, brief.Object, err)
		}
		refused, err := c.Call(client.WithoutNotices(t.Context()), "operator_leases", args{"run": "nobody"})
		if err == nil || !strings.Contains(refused.Text, "NOT_FOUND") {
			t.Errorf("the refusal is %q, %v", refused.Text, err)
		}
	})
}
