package tools

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
)

// The branch of a directory is read once for an answer, however many leases of the answer
// were taken there, and again for the next answer.
func TestABranchIsReadOnceForAnAnswer(t *testing.T) {
	dir := t.TempDir()
	checkOut := func(branch string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte("ref: refs/heads/"+branch+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := branches{}
	checkOut("one")
	first := originOf(dispatch.Origin{Directory: dir}, read).Branch
	checkOut("two")
	if again := originOf(dispatch.Origin{Directory: dir}, read).Branch; first != "one" || again != "one" {
		t.Errorf("one answer has branches %q and %q", first, again)
	}
	page := dispatch.LeasePage{Leases: []dispatch.LeaseInfo{{Origin: dispatch.Origin{Directory: dir}}}}
	if next := leaseListOf(page, uuid.Nil).Leases[0].Holder.Branch; next != "two" {
		t.Errorf("the next answer has branch %q", next)
	}
}
