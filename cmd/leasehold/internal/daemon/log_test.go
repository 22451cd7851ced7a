package daemon

import (
	"bufio"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// A log that nobody reads, as on a terminal after Ctrl-S, keeps nobody waiting. Once it is
// read again, it says how much is missing.
func TestALogThatNobodyReadsKeepsNobodyWaiting(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		log := logConfig{Format: format, Level: "info"}.open(w)
		const lines, read = 10000, 400 // more than a pipe holds, and enough to make room in it
		for range lines {
			log.Info().Msg("a line")
		}
		if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(r)
		next := func() string {
			line, err := reader.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		for range read {
			if line := next(); !strings.Contains(line, "a line") {
				t.Fatalf("%s: %q", format, line)
			}
		}
		log.Info().Msg("the last")
		w.Close()
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(rest) < 2 || !strings.Contains(rest[len(rest)-1], "the last") || !strings.Contains(rest[len(rest)-2], "lines are missing here") || len(rest) > lines-read {
			t.Errorf("%s: %d lines are left, which end with %q", format, len(rest), rest[max(0, len(rest)-2):])
		}
	}
}
