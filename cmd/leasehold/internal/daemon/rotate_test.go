package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTheLogBeginsAgainWhenItIsFull: it takes no more than two files of its size,
// loses nothing of the newer, and goes on in a file that was there.
func TestTheLogBeginsAgainWhenItIsFull(t *testing.T) {
	keepStderr(t)
	path := filepath.Join(t.TempDir(), "daemon.log")
	var log *rotated
	open := func() {
		var err error
		if log, err = openRotated(path); err != nil {
			t.Fatal(err)
		}
		log.max = 1000
	}
	open()
	var all strings.Builder
	for i := range 500 {
		if i%90 == 50 { // a restart
			if err := log.Close(); err != nil {
				t.Fatal(err)
			}
			open()
		}
		line := fmt.Sprintf("line %d\n", i)
		all.WriteString(line)
		if n, err := log.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatalf("wrote %d: %v", n, err)
		}
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(path + ".old")
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(now) > 1000 || len(before) > 1000 || !strings.HasSuffix(all.String(), string(before)+string(now)) {
			t.Fatalf("after %d lines: %d and %d bytes, the log ends with %q", i+1, len(before), len(now), now)
		}
		if i > 200 && len(before)+len(now) < 900 {
			t.Fatalf("after %d lines only %d bytes are left", i+1, len(before)+len(now))
		}
	}
	if _, err := os.Stderr.WriteString("a trace\n"); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); !strings.HasSuffix(string(text), "a trace\n") {
		t.Errorf("what goes to standard error is not in the log, which ends with %q", text)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// TestALogThatCannotBeReplacedGrows: a log that is too long is better than none.
func TestALogThatCannotBeReplacedGrows(t *testing.T) {
	keepStderr(t)
	path := filepath.Join(t.TempDir(), "daemon.log")
	if err := os.MkdirAll(filepath.Join(path+".old", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := openRotated(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	log.max = 10
	for range 5 {
		if _, err := log.Write([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
	}
	if text, _ := os.ReadFile(path); string(text) != strings.Repeat("a line\n", 5) {
		t.Errorf("the log is %q", text)
	}
}

// TestALogThatIsMovedBeginsAgain: logrotate moves a log, or copies and empties it, and
// people remove one. If its directory is replaced, what is there now is of another state.
func TestALogThatIsMovedBeginsAgain(t *testing.T) {
	keepStderr(t)
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "daemon.log")
	check := func(path, want string) {
		t.Helper()
		if text, _ := os.ReadFile(path); string(text) != want {
			t.Errorf("%s is %q, want %q", filepath.Base(path), text, want)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(os.Mkdir(dir, 0o700))
	log, err := openRotated(path)
	do(err)
	defer log.Close()
	log.max = 10
	write := func(line string) {
		t.Helper()
		_, err := log.Write([]byte(line))
		do(err)
	}
	write("one\n")
	do(os.Rename(path, path+".1"))
	write("two\n")
	check(path+".1", "one\n")
	check(path, "two\n")
	do(os.Remove(path))
	write("three\n")
	check(path, "three\n")
	_, err = os.Stderr.WriteString("!\n")
	do(err)
	check(path, "three\n!\n")
	do(os.Truncate(path, 0))
	write("four\n")
	check(path, "four\n") // it is not full
	do(os.Rename(dir, dir+".moved"))
	write("five\n")
	do(os.Mkdir(dir, 0o700))
	do(os.WriteFile(path, []byte("the other's\n"), 0o600))
	write("six\n")
	check(path, "the other's\n")
	check(filepath.Join(dir+".moved", "daemon.log"), "four\nfive\nsix\n")
}

// keepStderr gives the test its standard error back, which a log takes.
func keepStderr(t *testing.T) {
	t.Helper()
	fd, err := unix.Dup(int(os.Stderr.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Dup2(fd, int(os.Stderr.Fd())); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	})
}
