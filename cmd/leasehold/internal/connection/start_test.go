package connection_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

// lastWordsVariable has what the intermediate process of a start writes before it fails.
const lastWordsVariable = "LEASEHOLD_TEST_LAST_WORDS"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "detach" {
		fmt.Fprint(os.Stderr, os.Getenv(lastWordsVariable))
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// A daemon that the operating system does not let live, as where there may be no more
// processes or threads, fails before it can report anything, or crashes.
func TestAStartThatFailsNamesTheCause(t *testing.T) {
	for _, c := range []struct{ words, cause string }{
		{"leasehold: fork/exec lh: no more\nhint: end some\n", "fork/exec lh: no more; end some (the log is "},
		{"old binary: unknown command\n", "old binary: unknown command (the log is "},
		{
			"{\"message\":\"ready\"}\nfatal error: out of memory\n\ngoroutine 1 [running]:\n\t/go/proc.go:1 +0x1\n",
			"fatal error: out of memory (the log is ",
		},
		{"7:02PM INF ready\nfatal error: out of memory\n\ngoroutine 1 [running]:\n", "fatal error: out of memory (the log is "},
		{"panic: cause\n\ngoroutine 1 [running]:\nmain.main()\n\t/go/main.go:1 +0x1\nexit status 2\n", "panic: cause (the log is "},
		{"", "it left no message in "},
	} {
		t.Setenv(lastWordsVariable, c.words)
		dir := t.TempDir()
		if err := os.WriteFile(place.Log(dir), []byte("leasehold: of an earlier daemon\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := connection.NewDialer(place.Target{State: dir, Socket: filepath.Join(dir, "s"), Named: true}).Reach(t.Context(), true)
		if err == nil || !strings.HasPrefix(err.Error(), "the daemon did not start: "+c.cause) {
			t.Errorf("after %q: %v", c.words, err)
		}
	}
}

// Hundreds of clients may wait while one of them starts the daemon. If each of them looked
// for it as often as it can, none would get it: they need more than the whole processor,
// and the daemon does not come to listen before they give up.
func TestAWaitForTheStartOfADaemonLeavesTimeForIt(t *testing.T) {
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var looks atomic.Int64
	go func() { // ends with the listener
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			looks.Add(1)
			nc.Close()
		}
	}()
	// Each look for the daemon reaches this process instead, which is not the one of the record.
	record := place.Record{State: dir, Socket: ln.Addr().String(), OnDemand: true}.ThisProcess()
	other := process.Find(os.Getppid())
	record.PID, record.Start = other.PID, other.Start
	if err := record.Write(); err != nil {
		t.Fatal(err)
	}
	starting, err := os.Create(place.StartLock(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer starting.Close()
	if locked, err := process.TryLock(starting); !locked || err != nil {
		t.Fatal(locked, err)
	}

	synctest.Test(t, func(t *testing.T) {
		d := connection.NewDialer(place.Target{State: dir, Socket: filepath.Join(dir, "s"), Named: true})
		nc, err := d.Reach(t.Context(), true)
		if err == nil {
			nc.Close()
			t.Error("it has connected")
		}
		t.Log(err)
	})
	last, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = last.Read(make([]byte, 1)) // the looks before it have been counted
	last.Close()
	if n := looks.Load() - 1; n < 25 || n > 250 { // in 25 s
		t.Errorf("it has looked %d times", n)
	}
}
