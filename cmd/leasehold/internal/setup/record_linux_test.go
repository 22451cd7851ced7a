package setup_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Where the record cannot be replaced, no file of a client is changed, and nothing is left
// beside the record. Nothing can be renamed to a mount point.
func TestARecordThatCannotBeReplaced(t *testing.T) {
	h := newHome(t)
	state := filepath.Join(os.Getenv("XDG_STATE_HOME"), "leasehold")
	record := filepath.Join(state, "setup.json")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte("{\"files\": {}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(record, record, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("a file cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(record, syscall.MNT_DETACH) })
	h.write(".cursor/mcp.json", "{}\n")
	before := h.all()
	if out, err := h.run("cursor", "--yes"); err == nil {
		t.Errorf("it says %s", out)
	}
	h.same(before, "after it failed")
	list, err := os.ReadDir(state)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".setup-") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// A dev container mounts a file of its host, and people link a file of their dotfiles hard.
// Such a file is overwritten, because a rename fails or would cut the link.
func TestMountedAndLinkedFilesAreOverwritten(t *testing.T) {
	h := newHome(t)
	h.write("host/mcp.json", "{\"a\": 1}\n")
	h.write(".cursor/mcp.json", "")
	if err := syscall.Mount(h.path("host/mcp.json"), h.path(".cursor/mcp.json"), "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("a file cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(h.path(".cursor/mcp.json"), syscall.MNT_DETACH) })
	h.write("dotfiles/gemini.json", "{\"b\": 2}\n")
	if err := os.Mkdir(h.path(".gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(h.path("dotfiles/gemini.json"), h.path(".gemini/settings.json")); err != nil {
		t.Fatal(err)
	}
	before := h.all()
	h.ok("cursor", "gemini", "--yes")
	for _, name := range []string{"host/mcp.json", "dotfiles/gemini.json"} {
		if !strings.Contains(h.read(name), "leasehold") {
			t.Errorf("%s is not written: %s", name, h.read(name))
		}
	}
	h.ok("cursor", "gemini", "--uninstall", "--yes")
	h.same(before, "--uninstall")

	// One that is mounted for reading only stays, and nothing is left beside it.
	err := syscall.Mount("", h.path(".cursor/mcp.json"), "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := h.run("cursor", "--yes"); err == nil || !strings.Contains(err.Error()+out, "read-only") {
		t.Errorf("a file that is mounted for reading only: %v %s", err, out)
	}
	h.same(before, "after it failed")
}
