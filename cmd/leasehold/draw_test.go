package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

func TestTreeIsDrawnAtAnyDepth(t *testing.T) {
	var actors []shownActor
	for _, path := range []string{"root", "A", "A→B", "A→B→C", "A→B→D", "A→E", "F", "F→G"} {
		actors = append(actors, shownActor{Path: path})
	}
	want := []string{"", "├─ ", "│  ├─ ", "│  │  ├─ ", "│  │  └─ ", "│  └─ ", "└─ ", "   └─ "}
	for i, got := range branchesOf(actors) {
		if got != want[i] {
			t.Errorf("%s: %q, want %q", actors[i].Path, got, want[i])
		}
	}
}

func TestRemainingTimeIsRoundedUpAndRunsOut(t *testing.T) {
	for _, c := range []struct {
		left  millis
		since time.Duration
		want  string
	}{
		{27_001, 0, "28s"},
		{28_000, 0, "28s"},
		{28_000, 999 * time.Millisecond, "28s"},
		{28_000, time.Second, "27s"},
		{59_001, 0, "1m00s"},
		{3_600_000, 0, "1h00m"},
		{90_000_000, 0, "1d01h"},
		{1_000, time.Second, "now"},
		{-5, 0, "now"},
	} {
		if got := remaining(c.left, c.since); got != c.want {
			t.Errorf("%d ms after %v: %s, want %s", c.left, c.since, got, c.want)
		}
	}
}

func TestClocksGoOnBetweenLooks(t *testing.T) {
	object := json.RawMessage(`{"leases":[{"key":"gpu","scope":"run","token":7,"holder":{"path":"S1"},"expires_in_ms":30000,` +
		`"waiters":[{"path":"S2","waiting_ms":1000}]}]}`)
	text, err := drawLeases(object, 10*time.Second, paint{})
	if err != nil || !strings.Contains(text, "gpu    run    S1      20s      7      S2 (11s)\n") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	table := table{head: []string{"A", "B"}, rows: []row{{cells: []string{"S1→W1", "x"}, dim: true}, {cells: []string{"\x1b[31mred", "y"}}}}
	plain := table.render(paint{})
	if want := "A         B\nS1→W1     x\n\uFFFD[31mred  y\n"; plain != want {
		t.Errorf("%q, want %q", plain, want)
	}
	coloured := table.render(paint{on: true})
	if got := strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(coloured); got != plain || got == coloured {
		t.Errorf("%q, in colours %q", plain, coloured)
	}
}

func TestScreenIsLeftAsItWas(t *testing.T) {
	var out bytes.Buffer
	s, err := openScreen(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.draw("a\nb\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.close("b\n"); err != nil {
		t.Fatal(err)
	}
	if want := screenOpen + screenHome + "a" + lineEnd + "b\x1b[K" + screenRest + screenClose + "b\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestValuesBecomeWhatTheArgumentTakes(t *testing.T) {
	tool := mcp.Tool{InputSchema: mcp.ToolInputSchema{Properties: map[string]any{
		"s": map[string]any{"type": "string"}, "n": map[string]any{"type": "number"}, "i": map[string]any{"type": "integer"},
		"b": map[string]any{"type": "boolean"}, "any": map[string]any{},
	}}}
	for _, c := range []struct{ name, value, want string }{
		{"s", "text", `"text"`},
		{"s", "5", `"5"`},
		{"s", `"quoted"`, `"quoted"`},
		{"s", "a \"quote\"\n", `"a \"quote\""`},
		{"s", "", `""`},
		{"n", "1.5", `1.5`},
		{"n", "-2", `-2`},
		{"n", "soon", `"soon"`},
		{"i", "9007199254740993", `9007199254740993`},
		{"b", "true", `true`},
		{"b", "yes", `"yes"`},
		{"any", "12345678901234567890", `12345678901234567890`},
		{"any", ` {"b":1,"a":2}` + "\n", `{"b":1,"a":2}`},
		{"any", "null", `null`},
		{"any", "two words\n", `"two words\n"`},
		{"unknown", "5", `"5"`},
	} {
		if got := typed(typeOf(tool, c.name), c.value); string(got) != c.want {
			t.Errorf("%s=%q: %s, want %s", c.name, c.value, got, c.want)
		}
	}
}
