package view_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// has fails unless the screen has each text.
func has(t *testing.T, m *view.TestTop, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(m.Screen(), text) {
			t.Errorf("no %q on the screen:\n%s", text, m.Screen())
		}
	}
}

func hasNot(t *testing.T, m *view.TestTop, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(m.Screen(), text) {
			t.Errorf("%q is on the screen:\n%s", text, m.Screen())
		}
	}
}

// Each screen of a top fills the terminal and no more, at 60 columns too.
func TestTopIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		d.busyRun("release-42")
		var all bytes.Buffer
		for _, width := range []int{60, 120} {
			const height = 16
			m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "release-42", width, height)
			m.Look()
			screen := func(keys ...string) {
				m.Press(keys...)
				text := m.Screen()
				lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
				if len(lines) != height {
					t.Errorf("%d lines after %v:\n%s", len(lines), keys, text)
				}
				for _, line := range lines {
					if terminal.Width(line) > width {
						t.Errorf("a line of %d after %v: %s", terminal.Width(line), keys, line)
					}
				}
				fmt.Fprintf(&all, "%s %v\n%s\n", strings.Repeat("·", width), keys, steady(text))
			}
			screen()
			screen("down", "down", "enter")
			screen("esc", "tab", "down", "down", "down", "enter")
			screen("esc", "tab")
			screen("enter")
			screen("esc", "1", "/stripe")
			screen("esc", "x")
		}
		sameAsGolden(t, "top", all.Bytes())
	})
}

func TestTopScrollsAndSearches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		lead := d.busyRun("r")
		for i := range 40 {
			lead.call("run_lease_acquire", args{"key": fmt.Sprintf("k/%02d", i)})
		}
		m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "r", 100, 12)
		m.Look()
		m.Press("2")
		has(t, m, "more below")
		hasNot(t, m, "k/39")
		m.Press("G")
		has(t, m, "schema.sql")
		hasNot(t, m, "assets/")
		m.Press("g", "pgdown", "pgdown")
		has(t, m, "> k/", "more below")
		m.Press("/K/39", "enter")
		has(t, m, "k/39", "esc shows all")
		hasNot(t, m, "k/38")
		m.Press("esc")
		has(t, m, "k/11")
		m.Press("/nowhere")
		has(t, m, `no leases with "nowhere"`)
		m.Press("backspace", "esc", "q")
		if !m.Ended {
			t.Error("q does not end it")
		}
	})
}

// The count of a list that is too long to be read at once says that there are more.
func TestTopCountsAsFarAsItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		lead := d.actor("r", "", "lead", dispatch.Root)
		m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "r", 100, 12)
		for i := range 1001 {
			if i == 1000 {
				m.Look()
				has(t, m, "2 leases 1000  ")
			}
			lead.call("run_lease_acquire", args{"key": fmt.Sprint("k", i)})
		}
		m.Look()
		has(t, m, "2 leases 1000+  ")

		// A search finds none of the rest, so top says what reads them all.
		m.Press("2", "/k999")
		has(t, m, "no leases", "more than are shown here: leasehold leases shows all")
		d.reserved("r", "z")
		text, err := view.Leases(t.Context(), d.connect(server.Hello{Operator: true}), "r")
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Leases, Reserved []struct{ Key string } }
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			t.Fatal(err)
		}
		if len(list.Reserved) != 1 || list.Reserved[0].Key != "z" {
			t.Errorf("of the reservations there is %v", list.Reserved)
		}
		keys := make(map[string]bool)
		for _, l := range list.Leases {
			keys[l.Key] = true
		}
		if len(list.Leases) != 1001 || len(keys) != 1001 || strings.Contains(text, `"next"`) {
			t.Errorf("%d leases of %d keys", len(list.Leases), len(keys))
		}
	})
}

// What cannot be undone is asked about first, and only y does it.
func TestTopActsAfterAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		lead := d.busyRun("r")
		states := func() string { return string(lead.call("actor_list", args{})) }
		dead := func() string {
			var list struct{ Queues []struct{ Dead int } }
			if err := json.Unmarshal(lead.call("queue_stats", args{"queue": "compile"}), &list); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(list.Queues[0].Dead)
		}
		m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "r", 100, 20)
		m.Look()
		m.Press("/schema", "enter", "x")
		has(t, m, "cancel checkout-service→payments and all below it? y or n")
		before := states()
		m.Press("n")
		has(t, m, "not done")
		if after := states(); strings.Count(after, `"ended"`) != strings.Count(before, `"ended"`) {
			t.Errorf("n ended somebody: %s", after)
		}
		m.Press("esc", "G", "x", "y")
		has(t, m, "actor 翻訳者 of run r ended")
		m.Look()
		if after := states(); strings.Count(after, `"ended"`) != strings.Count(before, `"ended"`)+1 {
			t.Errorf("y ended nobody: %s", after)
		}
		hasNot(t, m, "> └─ 翻訳者")
		has(t, m, "2 ended; a shows them")
		m.Press("a", "G", "x")
		has(t, m, "翻訳者 has ended", "2 ended; a hides them")

		// The lease of the one who shares it, and not of the others.
		held := func() int {
			return strings.Count(string(lead.call("lease_list", args{"scope": "run"})), `"shared key"`)
		}
		for _, c := range []string{"reader1", "reader2"} {
			d.actor("r", "", c, "worker").call("run_lease_acquire", args{"key": "shared key", "mode": "shared"})
		}
		m.Look()
		m.Press("2", "/shared key", "enter", "down", "x")
		has(t, m, "revoke run lease shared key of reader2? y or n")
		m.Press("n")
		if n := held(); n != 2 {
			t.Errorf("after n %d hold it", n)
		}
		m.Press("x", "y")
		has(t, m, `run lease "shared key" revoked from reader2; now held by reader1`)
		if n := held(); n != 1 {
			t.Errorf("after y %d hold it", n)
		}
		m.Look()
		m.Press("enter")
		has(t, m, `history    0s ago: reader1 holds run lease "shared key", token`, `run lease "shared key" of reader2 was revoked`)
		m.Press("x")
		has(t, m, "revoke run lease shared key of reader1?")
		m.Press("n", "esc", "esc")

		m.Press("3", "d")
		has(t, m, "redrive 1 dead task of queue compile?")
		m.Press("q") // is no y
		if got := dead(); got != "1" {
			t.Errorf("%s dead", got)
		}
		m.Press("d", "y")
		if got := dead(); got != "0" {
			t.Errorf("%s dead after the redrive", got)
		}
		m.Look()
		m.Press("d")
		has(t, m, "queue compile has no dead tasks")
	})
}

// A run that is not there may come, and what was meant is named.
func TestTopOfARunThatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		d.busyRun("release-42")
		m := view.OpenTop(t, d.connect(server.Hello{Operator: true}), "relaese-42", 60, 12)
		m.Look()
		has(t, m, "did you mean run release-42?")
		d.actor("relaese-42", "", "lead", "root")
		m.Look()
		has(t, m, "root lead")
	})
}

// A read that takes long is repeated less often, so that a watch of a large run that
// changes all the time leaves the daemon to others. A small run is shown at once.
func TestAWatchReadsALargeRunLessOften(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 100 * time.Millisecond, 5 * time.Millisecond: 100 * time.Millisecond, 60 * time.Millisecond: 1200 * time.Millisecond, time.Second: 5 * time.Second,
	} {
		if got := view.PauseAfter(took); got != want {
			t.Errorf("after %v it pauses for %v, not %v", took, got, want)
		}
	}
}
