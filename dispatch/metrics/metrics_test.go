package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/metrics"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// What there is in a state is counted when it is opened, and followed from there on; a
// state that is let go counts no more.
func TestAmountsAreThoseOfTheStatesThatAreOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, set := vfs.NewMem(), metrics.New(metrics.Options{})
		within(t, fs, set, func(ctx context.Context, state *dispatch.State) {
			se := connected(ctx, t, state)
			for i := range 5 {
				ttl := time.Hour
				if i == 0 {
					ttl = time.Second
				}
				if _, err := se.Acquire(ctx, dispatch.RunScope, registry.Request{Key: fmt.Sprint(i), TTL: ttl}); err != nil {
					t.Fatal(err)
				}
			}
			shows(t, set, `leasehold_leases_held{scope="run"} 5`, "leasehold_partitions_led 1", "leasehold_sessions 1")
			time.Sleep(time.Minute)
			shows(t, set, `leasehold_leases_held{scope="run"} 4`, `leasehold_lease_hold_seconds_count{scope="run"} 1`)
		})
		shows(t, set, `leasehold_leases_held{scope="run"} 0`, "leasehold_partitions_led 0")
		within(t, fs, set, func(context.Context, *dispatch.State) {
			shows(t, set, `leasehold_leases_held{scope="run"} 4`, "leasehold_sessions 1", `leasehold_lease_grants_total{how="free",scope="run"} 5`)
		})
	})
}

// Each kind of event is counted under a name of its own, or not at all: what happens to a
// queue is no event of a task.
func TestEventsOfTasksAreThoseOfTasks(t *testing.T) {
	fs, set := vfs.NewMem(), metrics.New(metrics.Options{})
	within(t, fs, set, func(ctx context.Context, state *dispatch.State) {
		se := connected(ctx, t, state)
		own, err := se.Tasks()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := own.Enqueue(ctx, queue.NewTask{Queue: "mail", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		tasks, err := state.RunTasks(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		if paused, err := tasks.Pause(ctx, "mail", "they bounce"); err != nil || !paused {
			t.Fatal(paused, err)
		}
	})
	shows(t, set, `leasehold_task_events_total{event="enqueued",queue="mail"} 1`)
	if n := strings.Count(scrape(t, set), "\nleasehold_task_events_total{"); n != 1 {
		t.Errorf("a task was enqueued and its queue paused, which is %d events of tasks, not 1", n)
	}
}

// connected is a session of the root of a new run.
func connected(ctx context.Context, t *testing.T, state *dispatch.State) *dispatch.Session {
	t.Helper()
	_, token, err := state.AddActor(ctx, dispatch.NewActor{Run: "r", Name: "root", Role: dispatch.Root})
	if err != nil {
		t.Fatal(err)
	}
	se, err := state.Connect(ctx, dispatch.Credentials{Token: token}, process.Peer{Transport: "http"})
	if err != nil {
		t.Fatal(err)
	}
	return se
}

// within opens a state for as long as the story lasts.
func within(t *testing.T, fs vfs.FS, set *metrics.Set, story func(context.Context, *dispatch.State)) {
	t.Helper()
	eng, err := pebble.Open(pebble.Options{Dir: "state", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	detach := set.Attach(eng)
	state, err := dispatch.Open(t.Context(), eng, dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	tended := make(chan error, 1)
	go func() { tended <- state.Tend(ctx) }()
	story(ctx, state)
	stop()
	err = errors.Join(<-tended, eng.Close())
	detach()
	if err != nil {
		t.Error(err)
	}
}

func shows(t *testing.T, set *metrics.Set, lines ...string) {
	t.Helper()
	text := scrape(t, set)
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
}

func scrape(t *testing.T, set *metrics.Set) string {
	w := httptest.NewRecorder()
	set.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	return w.Body.String()
}
