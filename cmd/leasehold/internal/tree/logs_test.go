package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/leasehold/leasehold/dispatch/launcher"
)

// TestATailGoesOnInALogThatBeginsAgain: no line is missing, and none comes twice.
func TestATailGoesOnInALogThatBeginsAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdout.log")
	agent, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	follow := &tail{Tail: launcher.Tail{File: file}}
	var want, got []string
	say := func(n int) {
		for range n {
			line := fmt.Sprintf("line %d", len(want))
			want = append(want, line)
			fmt.Fprintln(agent, line)
		}
	}
	see := func() { follow.read(func(line string) { got = append(got, line) }) }
	for range 3 {
		say(5)
		see()
		say(5) // not seen before the log begins again
		fmt.Fprint(agent, "half ")
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(name+launcher.Earlier, text, 0o600)
		}
		if err == nil {
			err = os.Truncate(name, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "half a line")
		fmt.Fprintln(agent, "a line")
		see()
		see()
	}
	if !slices.Equal(got, want) {
		t.Errorf("followed %q, want %q", got, want)
	}
}
