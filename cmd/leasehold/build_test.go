package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// builds are the commands that the tests of this package have built, by version. All
// tests share them, because a build takes seconds. tests.Run removes them.
var builds struct {
	sync.Mutex
	dir string
	of  map[string]error
}

// shortDir makes a directory for a test in which a socket can be: the path of
// t.TempDir is too long for one.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// leaseholdIn puts the command into a directory, under the name leasehold.
func leaseholdIn(t testing.TB, dir string) (binary string) {
	t.Helper()
	return builtAs(t, dir, "")
}

// builtAs puts the command into a directory as a release of that version is built; with
// version "", as go build makes it. The file is a hard link where that is possible: a
// test may replace it, but must not write into it.
func builtAs(t testing.TB, dir, version string) (binary string) {
	t.Helper()
	binary = filepath.Join(dir, "leasehold")
	if version != "" {
		binary += "-" + version
	}
	shared, err := built(version)
	if err != nil {
		t.Fatal(err)
	}
	if os.Link(shared, binary) == nil {
		return binary
	}
	text, err := os.ReadFile(shared) // the directory is on another file system
	if err := errors.Join(err, os.WriteFile(binary, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	return binary
}

// built returns the path of the shared command of a version, which the first call builds.
func built(version string) (binary string, err error) {
	builds.Lock()
	defer builds.Unlock()
	if builds.of == nil {
		if builds.dir, err = os.MkdirTemp("", "leasehold-built"); err != nil {
			return "", err
		}
		builds.of = make(map[string]error)
	}
	binary = filepath.Join(builds.dir, "leasehold-"+version)
	err, done := builds.of[version]
	if !done {
		link := "-s -w" // a debugger's tables double the time of linking
		if version != "" {
			link += " -X github.com/leasehold/leasehold/cmd/leasehold/internal/build.release=" + version
		}
		if out, failed := exec.Command("go", "build", "-ldflags", link, "-o", binary, ".").CombinedOutput(); failed != nil {
			err = fmt.Errorf("build: %w\n%s", failed, out)
		}
		builds.of[version] = err
	}
	return binary, err
}

// tests runs the tests of this package, and removes what they have built.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer func() { os.RemoveAll(builds.dir) }()
	if signal.Ignored(syscall.SIGHUP) { // under nohup, and so would all that the tests start
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return m.M.Run()
}
