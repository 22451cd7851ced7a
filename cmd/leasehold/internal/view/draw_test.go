package view

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

func TestTreeIsDrawnAtAnyDepth(t *testing.T) {
	var actors []ShownActor
	for _, path := range []string{"root", "A", "A→B", "A→B→C", "A→B→D", "A→E", "F", "F→G"} {
		actors = append(actors, ShownActor{Path: path})
	}
	want := []string{"", "├─ ", "│  ├─ ", "│  │  ├─ ", "│  │  └─ ", "│  └─ ", "└─ ", "   └─ "}
	for i, got := range branchesOf(actors) {
		if got != want[i] {
			t.Errorf("%s: %q, want %q", actors[i].Path, got, want[i])
		}
	}
}

func TestW10ComesAfterW2(t *testing.T) {
	want := []string{"root", "W", "W→9", "W→10", "W 1", "W1", "W1→a", "W01", "W01→a", "W2", "W10", "W10b", "b"}
	runs := []ShownRun{{Run: "r10"}, {Run: "r9"}}
	for _, path := range slices.Sorted(slices.Values(want)) {
		runs[1].Actors = append(runs[1].Actors, ShownActor{Path: path})
	}
	runs = ordered(runs)
	var got []string
	for _, a := range runs[0].Actors {
		got = append(got, a.Path)
	}
	if !slices.Equal(got, want) || runs[1].Run != "r10" {
		t.Errorf("%q", got)
	}
}

func TestClocksGoOnBetweenLooks(t *testing.T) {
	object := json.RawMessage(`{"leases":[{"key":"gpu","scope":"run","token":7,"holder":{"path":"S1"},"expires_in_ms":30000,` +
		`"waiters":[{"path":"S2","waiting_ms":1000}]}]}`)
	text, err := drawLeases("")(object, 10*time.Second, terminal.Paint{})
	if err != nil || !strings.Contains(text, "gpu    run    S1      20s      7      S2 (11s)\n") {
		t.Errorf("%v\n%s", err, text)
	}
}
