package exit_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

// A relative path means nothing in a directory that this user may not enter, as after sudo -u from the
// home of somebody else.
func TestADirectoryOfSomebodyElseIsNamedAsTheCause(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir) // which sets PWD
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	asNobody(func() {
		_, err := os.Create("file")
		if hint := exit.SystemHint(err); !strings.HasPrefix(hint, "the directory that you are in has been removed, or cannot be read") {
			t.Errorf("%v: hint %q", err, hint)
		}
	})
}

// asNobody calls fn without the rights of root on files.
func asNobody(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good, so the thread ends with the goroutine
		if os.Geteuid() == 0 {
			if _, _, err := syscall.RawSyscall(syscall.SYS_SETREUID, ^uintptr(0), 65534, 0); err != 0 { // for this thread alone
				panic(err)
			}
		}
		fn()
	}()
	<-done
}
