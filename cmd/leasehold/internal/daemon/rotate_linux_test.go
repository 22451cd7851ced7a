package daemon

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A line that a full disk has cut is taken back, so that the next one, when there is room,
// is a line of its own.
func TestALogOnAFullDiskHasOnlyWholeLines(t *testing.T) {
	keepStderr(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 32<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "daemon.log")
	log, err := openRotated(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	line := []byte(strings.Repeat("x", 998) + "\n")
	written := 0
	for ; written < 64; written++ {
		if _, err := log.Write(line); err != nil {
			break
		}
	}
	if written == 64 {
		t.Fatal("the disk is not full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Write(line); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, bytes.Repeat(line, written+1)) {
		t.Errorf("after %d lines and one more, the log has %d bytes, in lines of %d, %v", written, len(text), len(line), err)
	}
}
