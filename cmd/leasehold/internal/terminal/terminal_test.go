package terminal

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestRemainingTimeIsRoundedUpAndRunsOut(t *testing.T) {
	for _, c := range []struct {
		left  Millis
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
		if got := Remaining(c.left, c.since); got != c.want {
			t.Errorf("%d ms after %v: %s, want %s", c.left, c.since, got, c.want)
		}
	}
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	table := Table{Head: []string{"A", "B"}, Rows: []Row{{Cells: []string{"S1→W1", "x"}, Dim: true}, {Cells: []string{"\x1b[31mred", "y"}}}}
	plain := table.Render(Paint{})
	if want := "A         B\nS1→W1     x\n\uFFFD[31mred  y\n"; plain != want {
		t.Errorf("%q, want %q", plain, want)
	}
	coloured := table.Render(Paint{On: true})
	if got := strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(coloured); got != plain || got == coloured {
		t.Errorf("%q, in colours %q", plain, coloured)
	}
}

func TestScreenIsLeftAsItWas(t *testing.T) {
	var out bytes.Buffer
	s, err := OpenScreen(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Draw("a\nb\n"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close("b\n"); err != nil {
		t.Fatal(err)
	}
	if want := screenOpen + screenHome + "a" + lineEnd + "b\x1b[K" + screenRest + screenClose + "b\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
