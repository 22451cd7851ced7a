package launcher_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/launcher"
)

// Whoever is told of events may stand still: they are recorded all the same,
// and told in the order of the record once it goes on.
func TestEventsAreRecordedWhileNobodyListens(t *testing.T) {
	d := &launcher.Directory{Path: t.TempDir()}
	var told []string
	launcher.TellThrough(d, func(e launcher.Event) {
		if told == nil { // the last is recorded before the first has been heard
			record := readWhenIt(t, filepath.Join(d.Path, "events.jsonl"), `"text":"third"`)
			if strings.Count(record, "\n") != 3 {
				t.Errorf("recorded: %s", record)
			}
		}
		told = append(told, e.Text)
	}, nil, launcher.Event{Text: "first"}, launcher.Event{Text: "second"}, launcher.Event{Text: "third"})
	if got := strings.Join(told, " "); got != "first second third" {
		t.Errorf("told: %s", got)
	}
}

// An interrupt ends the wait for somebody who does not listen.
func TestInterruptEndsTheTelling(t *testing.T) {
	d := &launcher.Directory{Path: t.TempDir()}
	interrupts := make(chan struct{}, 1)
	deaf := make(chan struct{})
	defer close(deaf)
	interrupts <- struct{}{}
	launcher.TellThrough(d, func(launcher.Event) { <-deaf }, interrupts, launcher.Event{Text: "first"})
}

// readWhenIt reads a file as soon as it has a text.
func readWhenIt(t *testing.T, path, has string) string {
	for t.Context().Err() == nil {
		if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), has) {
			return string(text)
		}
	}
	return ""
}
