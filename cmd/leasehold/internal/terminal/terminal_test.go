package terminal

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
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
	table := Table{Columns: []Column{{Head: "A"}, {Head: "B"}}, Rows: []Row{TextRow("S1→W1", "x"), TextRow("\x1b[31mred", "y")}}
	table.Rows[0].Dim = true
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

// Where each line is an event, a text with a newline must not look like two.
func TestALineIsOneAlsoWhereThereIsNoTerminal(t *testing.T) {
	if got := Line(new(bytes.Buffer), "a is dead (nack: b\r\n7  c holds d)"); strings.ContainsAny(got, "\r\n") {
		t.Errorf("%q", got)
	}
}

// The alphabet of what agents may write: letters of one column and of two, marks
// of none, and emoji of several runes.
var alphabet = []string{"a", "/", ".", "→", "é", "e\u0301", "日", "本", "ﾊ", "한", "🚀", "🇯🇵", "👍🏽", "❤️"}

func TestTextIsShortenedToItsWidthAndMarked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 40).Draw(t, "text"), "")
		width := rapid.IntRange(2, 50).Draw(t, "width")
		for name, got := range map[string]string{"end": Clip(text, width), "start": ClipLeft(text, width)} {
			switch {
			case Width(text) <= width && got != text:
				t.Errorf("%s: %q fits in %d, and became %q", name, text, width, got)
			case Width(got) > width:
				t.Errorf("%s: %q is wider than %d", name, got, width)
			case got != text && !strings.Contains(got, "…"):
				t.Errorf("%s: %q of %q has no mark", name, got, text)
			}
		}
		if got := ClipLeft(text, width); !strings.HasSuffix(text, strings.TrimPrefix(got, "…")) {
			t.Errorf("%q is no end of %q", got, text)
		}
	})
}

// Whatever is in a table: no line is too wide, and what is always shown is shown,
// as far as columns can be narrowed at all.
func TestTablesKeepTheirWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 0, 30).Draw(t, "word"), "")
		})
		table := Table{Columns: []Column{
			{Head: "KEY", Want: 20, Bare: 6, Left: true},
			{Head: "SOME", Rank: Minor, Want: 10},
			{Head: "WHO", Want: 12, Bare: 6, Left: true},
			{Head: "MORE", Rank: Minor + 1},
			{Head: "STATE", Rank: IfEmpty, Bare: 5},
			{Head: "LINE", Want: 12, Bare: 8},
		}}
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			waiting := rapid.SliceOfN(word, 0, 4).Draw(t, "waiting")
			table.Add(Text(word.Draw(t, "key")), Text(word.Draw(t, "some")), Text(word.Draw(t, "who")), Text(word.Draw(t, "more")),
				Text(rapid.SampledFrom([]string{"", "-", "12", "in_progress"}).Draw(t, "state")),
				Several(waiting, len(waiting)+rapid.IntRange(0, 3).Draw(t, "hidden")))
		}
		width := rapid.IntRange(40, 200).Draw(t, "width")
		text := table.Render(Paint{Width: width})
		for line := range strings.Lines(text) {
			if w := Width(strings.TrimSuffix(line, "\n")); w > width {
				t.Fatalf("a line of %d at %d:\n%s", w, width, text)
			}
		}
		head, _, _ := strings.Cut(text, "\n")
		for _, column := range table.Columns {
			shown := strings.Contains(head, column.Head)
			if !shown && column.Rank == Always {
				t.Fatalf("no %s at %d:\n%s", column.Head, width, text)
			}
			if _, notes, _ := strings.Cut(text, "\n"); !shown && !strings.Contains(notes, column.Head) {
				t.Fatalf("%s is left out at %d, and nothing says so:\n%s", column.Head, width, text)
			}
		}
	})
}

// An optional column is there once a row has something for it. Without one, it takes no
// room and no note says that it is missing.
func TestAnOptionalColumnIsThereOnlyIfARowHasIt(t *testing.T) {
	for _, width := range []int{0, 16, 12} {
		table := &Table{Columns: []Column{{Head: "NAME"}, {Head: "COST", Optional: true}, {Head: "NOTE", Optional: true}}}
		table.AddTexts("a", "-", "")
		table.AddTexts("b", "-", "")
		if got := table.Render(Paint{Width: width}); got != "NAME\na\nb\n" {
			t.Errorf("at width %d, with nothing in them:\n%s", width, got)
		}
		table.AddTexts("c", "$1", "")
		if got := table.Render(Paint{Width: width}); got != "NAME  COST\na     -\nb     -\nc     $1\n" {
			t.Errorf("at width %d, with a cost:\n%s", width, got)
		}
	}
}

// What stands at the end of a cell is there in every width that has room for it, and
// hides behind no number.
func TestACellKeepsItsLastText(t *testing.T) {
	for width, want := range map[int]string{
		60: "a.go, b.go, c.go, task 1 of compile, task 2 of compile",
		40: "a.go, b.go, c.go, 2 tasks of compile",
		30: "a.go, b.go, c.go, 2 tasks",
		20: "a.go, +2, 2 tasks",
		15: "…o, +2, 2 tasks",
	} {
		table := &Table{Columns: []Column{{Head: "HOLDS", Want: 8, Bare: 8, Left: true}}}
		table.Add(Several([]string{"a.go", "b.go", "c.go"}, 3).Last("task 1 of compile, task 2 of compile", "2 tasks of compile", "2 tasks"))
		table.Add(Several(nil, 0).Last("task 1 of compile, task 2 of compile", "2 tasks of compile", "2 tasks"))
		lines, _ := table.Lines(Paint{Width: width})
		if lines[1] != want || !strings.Contains(lines[2], "task") {
			t.Errorf("at %d it is\n%s\n%s\nwant\n%s", width, lines[1], lines[2], want)
		}
	}
}

// A long list makes no line long, even where the width is not limited, as in a pipe.
func TestALongListIsShortened(t *testing.T) {
	var keys []string
	for i := range 40 {
		keys = append(keys, fmt.Sprintf("src/module/file%02d.go", i))
	}
	table := &Table{Columns: []Column{{Head: "HOLDS"}}}
	table.Add(Several(keys, 50))
	table.Add(Several(keys[:2], 2))
	table.Add(Several([]string{strings.Repeat("k", 80)}, 1))
	want := "HOLDS\nsrc/module/file00.go, src/module/file01.go, +48\nsrc/module/file00.go, src/module/file01.go\n" + strings.Repeat("k", 80) + "\n"
	if got := table.Render(Paint{}); got != want {
		t.Errorf("got\n%s\nand not\n%s", got, want)
	}
}
