package tree

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
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
