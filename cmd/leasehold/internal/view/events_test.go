package view_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine/event"
)

// Whoever goes on behind a revision is told if events that follow it are forgotten,
// and shown all that is kept otherwise.
func TestEventsSaysWhatIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemonThatKeeps(t, dispatch.Retention{Events: event.Retention{Count: 100}})
		lead := d.actor("r", "", "lead", "root")
		c := d.connect(server.Hello{Operator: true})
		if out, said, code := view.Events(t.Context(), c, "r", 1, true); code != 0 || !strings.HasPrefix(out, `{"revision":2,`) {
			t.Errorf("before any is forgotten: exit code %d, %s%s", code, said, out)
		}
		for range 5000 {
			lead.call("task_enqueue", args{"queue": "q", "payload": 1})
		}
		synctest.Wait()
		if out, said, code := view.Events(t.Context(), c, "r", 1, false); code != 3 || out != "" || !strings.Contains(said, "are no longer all kept") || !strings.Contains(said, "hint: leave out --since") {
			t.Errorf("exit code %d, %s%s", code, said, out)
		}
		if out, said, code := view.Events(t.Context(), c, "r", 1, true); code != 3 || !strings.Contains(out, `"code":"COMPACTED"`) || said != "" {
			t.Errorf("for a program: exit code %d, %s%s", code, said, out)
		}
		if out, said, code := view.Events(t.Context(), c, "r", 0, true); code != 0 || strings.Count(out, "\n") < 100 {
			t.Errorf("of all that is kept: exit code %d, %s%s", code, said, out)
		}
	})
}
