package connection_test

import (
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
)

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
