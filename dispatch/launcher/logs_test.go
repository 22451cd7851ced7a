package launcher_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/launcher"
)

// A tail that has not read everything when an output begins again misses nothing, and
// gives nothing twice.
func TestATailGoesOnInAnOutputThatBeginsAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "stdout.log")
	agent, err := launcher.OpenOutput(name, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var want, got strings.Builder
	tail := &launcher.Tail{File: file}
	see := func() {
		t.Helper()
		if err := tail.Next(func(some []byte) { got.Write(some) }); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Fatalf("followed %q, want %q", got.String(), want.String())
		}
	}
	say := func() {
		line := fmt.Sprintf("line %d\n", want.Len())
		want.WriteString(line)
		fmt.Fprint(agent, line)
	}
	for range 3 {
		for range 12 {
			say()
		}
		see()
		for range 3 {
			say() // not seen before the output begins again
		}
		if err := agent.Rotate(); err != nil {
			t.Fatal(err)
		}
		say()
		see()
	}
}
