package logs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/logs"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

// The last lines of an output that has just begun again are mostly those that it had
// before.
func TestTheLastLinesAreThereAfterAnOutputBeganAgain(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	state, err := place.State()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := launcher.NewDirectory(filepath.Join(state, "runs"), "r", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir.Path, "actors", "root", "stdout.log")
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		filepath.Join(dir.Path, "run.json"):     `{"run":"r"}`,
		filepath.Join(dir.Path, "events.jsonl"): fmt.Sprintf(`{"event":"actor_started","path":"root","logs":[%q,%q]}`+"\n", out, out+".none"),
		out + launcher.Earlier:                  "one\ntwo\nthree\n",
		out:                                     "four\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, _, _, err := logs.Last(t.Context(), "r", "root", 3)
	if want := []string{"two", "three", "four"}; err != nil || !slices.Equal(stdout, want) {
		t.Errorf("the last lines are %q, %v; want %q", stdout, err, want)
	}
}
