package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/server"
)

// examineSocket looks at the socket, and asks the daemon behind it.
func examineSocket(cmd *cobra.Command) []finding {
	d, err := connection.For(cmd)
	if err != nil {
		return []finding{faultOf("socket", err)}
	}
	began := time.Now()
	c, err := d.Open(cmd.Context(), server.Hello{Operator: true}, false)
	socket := d.Socket
	took := time.Since(began)
	var found []finding
	if what, do := openToOthers(filepath.Dir(socket), 0o022); what != "" {
		found = append(found, finding{"socket", fault, what + ", and could replace the socket", do})
	}
	if errors.Is(err, context.Canceled) {
		return found
	}
	if err != nil {
		return append(found, noDaemon(socket, err))
	}
	defer c.Close()
	if r, ok := place.ReadRecord(d.State()); ok && r.Socket == socket && r.Alive() && r.Replaced() {
		return append(found, finding{
			"socket", note, fmt.Sprintf("%s has been replaced since the daemon (pid %d) was started from it", r.Binary, r.PID),
			"leasehold restart: no session ends by that",
		})
	}
	if c.Version != build.Version() {
		return append(found, finding{
			"socket", note, fmt.Sprintf("the daemon at %s is version %s, this command %s", socket, c.Version, build.Version()),
			"leasehold restart: no session ends by that",
		})
	}
	return append(found, finding{Check: "socket", Level: fine, What: fmt.Sprintf(
		"a daemon, version %s, answers at %s in %v", c.Version, socket, took.Round(100*time.Microsecond))})
}

func noDaemon(socket string, err error) finding {
	if errors.Is(err, connection.ErrNoDaemon) {
		return finding{Check: "socket", Level: note, What: fmt.Sprintf("no daemon listens at %s; leasehold mcp starts one when a client does", socket)}
	}
	f := faultOf("socket", err)
	if f.Do == "" {
		f.Do = "see its log, and start it anew: no session ends by that"
	}
	return f
}

// examinePlace looks at where the state is, or is to be.
func examinePlace() []finding {
	dir, err := place.State()
	if err != nil {
		return []finding{faultOf("state", err)}
	}
	db := filepath.Join(dir, "db")
	var found []finding
	wrong := func(what, do string) {
		if what != "" {
			found = append(found, finding{"state", fault, what, do})
		}
	}
	wrong(openToOthers(dir, 0o022))
	wrong(openToOthers(db, 0o077))
	at := nearest(db)
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		wrong(fmt.Sprintf("%s cannot be written: %v", at, err), "give it to yourself, or set XDG_STATE_HOME to a place that is yours")
	}
	room, err := freeSpace(at)
	if err != nil {
		return append(found, faultOf("state", err))
	}
	if room < minRoom {
		wrong(fmt.Sprintf("%s has %d MiB free: a daemon that cannot write stops to serve", at, room>>20),
			fmt.Sprintf("make room for at least %d MiB", minRoom>>20))
	}
	if len(found) > 0 {
		return found
	}
	what := fmt.Sprintf("%s is yours alone, with %.1f GiB free", db, float64(room)/(1<<30))
	if at != db {
		what = fmt.Sprintf("%s is not there yet; the first daemon makes it, with %.1f GiB free", db, float64(room)/(1<<30))
	}
	return []finding{{Check: "state", Level: fine, What: what}}
}

// minRoom is what the logs and the compactions of a busy state take for a
// while, several times over.
const minRoom = 256 << 20

func freeSpace(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, fmt.Errorf("room at %s: %w", path, err)
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// nearest is the path, or the nearest above it that is there.
func nearest(path string) string {
	for {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// openToOthers says what is wrong with a directory that is not only its
// user's. One that is not there is made as it has to be.
func openToOthers(dir string, others fs.FileMode) (what, do string) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", ""
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != os.Getuid() {
		return fmt.Sprintf("%s belongs to user %d", dir, stat.Uid), "run as that user, or name another place"
	}
	if info.Mode().Perm()&others != 0 && info.Mode()&fs.ModeSticky == 0 {
		return fmt.Sprintf("others may use %s, mode %v", dir, info.Mode().Perm()), "chmod 700 " + dir
	}
	return "", ""
}

const (
	clockLook  = 200 * time.Millisecond
	clockSlack = 20 * time.Millisecond // more than a clock that is slewed gains meanwhile
)

// examineClock compares the wall clock with the monotonic one, and with what
// is known to be past. Leases are by the monotonic clock; delays, retention and
// times for people start from the wall clock when the daemon does.
func examineClock() []finding {
	began := time.Now()
	time.Sleep(clockLook)
	now := time.Now()
	steady, wall := now.Sub(began), now.Round(0).Sub(began.Round(0))
	if off := wall - steady; off.Abs() > clockSlack {
		return []finding{{
			"clock", fault, fmt.Sprintf("the wall clock went on by %v while %v passed", wall, steady),
			"let one service keep the time, and by slewing; leases are kept by another clock, delays of tasks by this one",
		}}
	}
	if past := knownPast(); now.Before(past) {
		return []finding{{
			"clock", fault, fmt.Sprintf("the wall clock says %s, and something here is of %s", now.UTC().Format(time.RFC3339), past.UTC().Format(time.RFC3339)),
			"set the clock; until then delayed tasks come late, and finished ones are kept too long",
		}}
	}
	return []finding{{Check: "clock", Level: fine, What: fmt.Sprintf("wall and monotonic time agree to %v over %v", (wall - steady).Abs().Round(time.Microsecond), clockLook)}}
}

// knownPast is a time that is over: this program was built then, or the state
// was written.
func knownPast() (past time.Time) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				past, _ = time.Parse(time.RFC3339, s.Value)
			}
		}
	}
	dir, err := place.State()
	if err != nil {
		return past
	}
	files, _ := os.ReadDir(filepath.Join(dir, "db"))
	for _, f := range files {
		if info, err := f.Info(); err == nil && info.ModTime().After(past) {
			past = info.ModTime()
		}
	}
	return past.Add(-time.Minute) // what lies there may come from a machine with a clock of its own
}
