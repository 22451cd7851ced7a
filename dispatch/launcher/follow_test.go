package launcher_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/server"
)

// Each of a run's events is recorded once and in order, however fast they come and
// also if the daemon is away meanwhile, up to those of the run's end.
func TestEachEventOfARunIsRecordedOnce(t *testing.T) {
	h := newHouse(t)
	d := h.dispatch("whole", "while ! [ -e go ]; do sleep 0.05; done")
	d.await(launcher.ActorStarted)
	handle := ""
	busy := func() {
		nc, err := new(net.Dialer).DialContext(t.Context(), "unix", h.socket)
		if err != nil {
			t.Fatal(err)
		}
		hello := server.Hello{Run: "whole", Name: "busy", Handle: handle}
		c, err := client.Connect(t.Context(), nc, hello, "busy", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		handle = c.Handle
		for i := range 300 {
			answer, err := c.Call(t.Context(), "run_lease_acquire", map[string]any{"key": fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			var l struct {
				LeaseID string `json:"lease_id"`
			}
			if err := json.Unmarshal(answer.Object, &l); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Call(t.Context(), "run_lease_release", map[string]any{"lease_id": l.LeaseID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	busy()
	h.close()
	d.await(launcher.DaemonLost)
	h.open()
	d.await(launcher.DaemonBack)
	handle = "" // the session has ended with its connection
	busy()
	if err := os.WriteFile(filepath.Join(h.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.end(); err != nil {
		t.Fatal(err)
	}

	got := revisions(t, d.directory)
	c, err := h.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var want []uint64
	for since, more := uint64(0), true; more; {
		answer, err := c.Call(t.Context(), "operator_events", map[string]any{"run": "whole", "since": since})
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Events []launcher.Event
			Next   uint64
			More   bool
		}
		if err := json.Unmarshal(answer.Object, &page); err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			want = append(want, e.Revision)
		}
		since, more = page.Next, page.More
	}
	if len(want) < 1200 || !slices.Equal(got, want) {
		t.Errorf("%d events are recorded, there are %d", len(got), len(want))
	}
}

// revisions are those of the events of the run in a run directory.
func revisions(t *testing.T, d *launcher.Directory) (list []uint64) {
	t.Helper()
	f, err := os.Open(filepath.Join(d.Path, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var e launcher.Event
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, in.Bytes())
		}
		if e.Revision > 0 {
			list = append(list, e.Revision)
		}
	}
	return list
}

// A dispatcher that goes on with a run goes on behind the last event that was
// recorded whole.
func TestTheRecordGoesOnBehindItsLastWholeLine(t *testing.T) {
	d := &launcher.Directory{Path: t.TempDir()}
	if last, err := launcher.LastRevision(d); err != nil || last != 0 {
		t.Errorf("without a record: %d, %v", last, err)
	}
	launcher.TellThrough(d, nil, nil, launcher.Event{Revision: 7}, launcher.Event{Event: launcher.DaemonLost})
	f, err := os.OpenFile(filepath.Join(d.Path, "events.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"revision":8,"event":"lease_gr`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if last, err := launcher.LastRevision(d); err != nil || last != 7 {
		t.Errorf("with a line cut short: %d, %v", last, err)
	}
	launcher.TellThrough(d, nil, nil, launcher.Event{Revision: 8})
	if got := revisions(t, d); !slices.Equal(got, []uint64{7, 8}) {
		t.Errorf("recorded: %v", got)
	}
}
