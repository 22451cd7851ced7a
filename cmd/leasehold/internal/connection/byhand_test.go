package connection_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine/clock"
)

// unstartable returns a place where the start of a daemon fails, because its log cannot be
// written.
func unstartable(t *testing.T) place.Target {
	dir := t.TempDir()
	if err := os.Mkdir(place.Log(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	return place.Target{State: dir, Socket: filepath.Join(dir, "s"), Named: true}
}

// A daemon listens before it has written who started it, and its state may be removed while
// it dies and can still be connected to.
func TestADaemonStartedByHandIsNotReplacedWheneverItIsLookedAt(t *testing.T) {
	for _, there := range [][3]bool{{false, true, true}, {true, false, false}, {false, true, false}, {false, false, true}} {
		target := unstartable(t)
		ln, err := net.Listen("unix", target.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		d := connection.NewDialer(target)
		for at, recorded := range there {
			record := place.Record{State: target.State, Socket: target.Socket}.ThisProcess()
			if recorded {
				err = record.Write()
			} else {
				err = os.RemoveAll(target.Socket + ".owner")
			}
			err = errors.Join(err, os.RemoveAll(filepath.Join(target.State, "daemon.json"))) // as after a stop
			if err != nil {
				t.Fatal(err)
			}
			if at == len(there)-1 {
				break
			}
			nc, err := d.Reach(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
		}
		ln.Close()
		if _, err := d.Reach(t.Context(), true); !errors.Is(err, connection.ErrNoDaemon) {
			t.Errorf("recorded at two connections and at the loss: %v: %v", there, err)
		}
	}
}

// A process that was killed closes its sockets before it has ended.
func TestADaemonStartedByHandIsNotReplacedWhileItDies(t *testing.T) {
	target := unstartable(t)
	daemon := exec.Command("sleep", "600")
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer daemon.Wait()
	defer daemon.Process.Kill()
	record := place.Record{State: target.State, Socket: target.Socket, PID: daemon.Process.Pid, Boot: clock.Boot()}
	record.Start = process.Find(record.PID).Start
	if err := record.Write(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(100*time.Millisecond, func() { daemon.Process.Kill() }).Stop()
	if _, err := connection.NewDialer(target).Reach(t.Context(), true); !errors.Is(err, connection.ErrNoDaemon) {
		t.Error(err)
	}
}

// A daemon that was killed leaves its record. In another container another daemon may
// have the same pid and socket.
func TestADaemonOfAnotherStateIsNotFound(t *testing.T) {
	target := unstartable(t)
	target.Named = false
	other := place.Record{State: t.TempDir(), Socket: filepath.Join(target.State, "other")}.ThisProcess()
	ln, err := net.Listen("unix", other.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	killed := other
	killed.State, killed.Start = target.State, "earlier"
	if err := errors.Join(killed.Write(), other.Write()); err != nil {
		t.Fatal(err)
	}
	if nc, err := connection.NewDialer(target).Reach(t.Context(), false); !connection.NoneRuns(err) {
		t.Errorf("it finds %v, %v", nc, err)
	}
}
