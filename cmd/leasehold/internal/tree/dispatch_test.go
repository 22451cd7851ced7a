package tree

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/launcher"
)

// A run whose directory is not in the usual place is found by its path only.
func TestARunWithoutItsDaemonIsResumedByItsDirectory(t *testing.T) {
	dir := &launcher.Directory{Path: "/elsewhere/release/20260101T000000"}
	err := whatNext(launcher.ErrDaemonGone, "release", dir, false)
	var hinted exit.Hinted
	if !errors.As(err, &hinted) || !strings.Contains(hinted.Hint, "--resume "+dir.Path+" ") {
		t.Errorf("hint: %q", hinted.Hint)
	}
}

func TestTheSummaryHasW10AfterW2(t *testing.T) {
	s := launcher.Summary{Actors: []launcher.Actor{{Path: "root"}, {Path: "W10", Worktree: "/10"}, {Path: "W2", Worktree: "/2"}}}
	text := drawSummary(s, terminal.Paint{})
	if strings.Index(text, "\nW2 ") > strings.Index(text, "\nW10 ") || strings.Index(text, "of W2:") > strings.Index(text, "of W10:") {
		t.Error(text)
	}
}
