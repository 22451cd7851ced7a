package place_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
)

// Opening a pipe waits for a writer. Another user can make one beside a socket in a
// directory such as /tmp.
func TestAPipeBesideASocketIsNotWaitedFor(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	if err := syscall.Mkfifo(socket+".owner", 0o600); err != nil {
		t.Fatal(err)
	}
	if owner, ok := place.OwnerOf(socket); ok {
		t.Errorf("the owner is %+v", owner)
	}
}
