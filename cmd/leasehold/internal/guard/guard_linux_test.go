package guard_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/guard"
)

// A hook that cannot be replaced is left as it is, and nothing is left beside it. Nothing
// can be renamed to a mount point.
func TestAHookThatCannotBeReplaced(t *testing.T) {
	hook := filepath.Join(t.TempDir(), "pre-commit")
	const old = "# leasehold:pre-commit, of another version\n"
	if err := os.WriteFile(hook, []byte(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(hook, hook, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("a file cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(hook, syscall.MNT_DETACH) })
	if err := guard.Install(hook); err == nil {
		t.Error("it was replaced")
	}
	if text, err := os.ReadFile(hook); err != nil || string(text) != old {
		t.Errorf("the hook is %q, %v", text, err)
	}
	list, err := os.ReadDir(filepath.Dir(hook))
	if err != nil || len(list) != 1 {
		t.Errorf("the directory has %v, %v", list, err)
	}
}
