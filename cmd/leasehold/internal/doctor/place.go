package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
)

// examineSocket checks the socket and the daemon behind it, and compares that
// daemon's clocks.
func examineSocket(cmd *cobra.Command) (found, clocks []finding) {
	d, err := connection.For(cmd)
	if err != nil {
		return []finding{faultOf("socket", err)}, nil
	}
	began := time.Now()
	c, err := d.Open(cmd.Context(), server.Hello{Operator: true}, false)
	socket := d.Socket
	took := time.Since(began)
	if what, do := openToOthers(filepath.Dir(socket), 0o022); what != "" {
		found = append(found, finding{"socket", fault, what + ", and could replace the socket", do})
	}
	if what, do := movable(filepath.Dir(socket)); what != "" {
		found = append(found, finding{"socket", fault, what, do})
	}
	if errors.Is(err, context.Canceled) {
		return found, nil
	}
	if err != nil {
		return append(found, noDaemon(socket, err)), nil
	}
	defer c.Close()
	clocks = askClocks(cmd.Context(), c)
	if r, ok := place.ReadRecord(d.State()); ok && r.Socket == socket && r.Alive() && r.Replaced() != "" {
		return append(found, finding{
			"socket", note, fmt.Sprintf("%s %s since the daemon (pid %d) was started from it", r.Binary, r.Replaced(), r.PID),
			"leasehold restart: no session ends by that",
		}), clocks
	}
	if what, do, other := strings.Cut(connection.VersionAdvice(c.Version), ": "); other {
		return append(found, finding{"socket", note, what, do}), clocks
	}
	return append(found, finding{Check: "socket", Level: fine, What: fmt.Sprintf(
		"a daemon, version %s, answers at %s in %v", c.Version, socket, took.Round(100*time.Microsecond))}), clocks
}

// daemonOf returns the record of the daemon of a command, which is zero if none runs.
func daemonOf(cmd *cobra.Command) (r place.Record) {
	if d, err := connection.For(cmd); err == nil { // examineSocket tells of an error
		if found, ok := place.ReadRecord(d.State()); ok && found.Alive() {
			return found
		}
	}
	return r
}

// examineCertificates checks when those expire that the daemon presents.
func examineCertificates(daemon place.Record) (found []finding) {
	for _, c := range daemon.Certificates {
		f := finding{Check: "tls", Level: fine, What: fmt.Sprintf("the certificate %s lasts until %s", c.File, c.Expires.UTC().Format(time.RFC3339))}
		if what, expired := c.Expiring(time.Now()); what != "" {
			f.Level, f.What, f.Do = note, what, place.RenewCertificate
			if expired {
				f.Level = fault
			}
		}
		found = append(found, f)
	}
	return found
}

// daemonAt is the socket of the daemon that runs, if one does.
func daemonAt(cmd *cobra.Command) []string {
	d, err := connection.For(cmd)
	if err != nil {
		return nil
	}
	c, err := d.Open(cmd.Context(), server.Hello{Operator: true}, false)
	if err != nil {
		return nil
	}
	c.Close()
	return []string{d.Socket}
}

func noDaemon(socket string, err error) finding {
	if connection.NoneRuns(err) {
		at := nearest(filepath.Dir(socket))
		if err := unix.Access(at, unix.W_OK|unix.X_OK); errors.Is(err, fs.ErrPermission) {
			return finding{
				"socket", fault, fmt.Sprintf("no daemon listens at %s, and none can: %s cannot be written: %v", socket, at, err),
				"name a place of yours with --socket, LEASEHOLD_SOCKET or XDG_RUNTIME_DIR, or make yourself its owner",
			}
		}
		if file, err := denied(server.SocketLock(socket)); err != nil {
			return finding{
				"socket", fault, fmt.Sprintf("no daemon listens at %s, and none can: %s cannot be read and written: %v", socket, file, err),
				"sudo chown " + toOwner(file),
			}
		}
		return finding{Check: "socket", Level: note, What: fmt.Sprintf("no daemon listens at %s; leasehold mcp starts one when a client does", socket)}
	}
	f := faultOf("socket", err)
	_, answers := errors.AsType[*server.HelloError](err)
	switch {
	case f.Do != "":
	case answers:
		f.Do = "see its log"
	default:
		f.Do = "see its log, and start it again: no session ends by that"
	}
	return f
}

// maxStuck is how long a disk may take before doctor says that it is stuck. The daemon's
// log says so after the same time.
const maxStuck = 5 * time.Second

// unlessStuck returns what a check of the state's directory finds. A call to a disk that is
// stuck, such as one that is frozen or a network disk without its server, cannot be
// interrupted, so the check is then left behind.
func unlessStuck(check func() []finding) []finding {
	done := make(chan []finding, 1)
	go func() { done <- check() }()
	select {
	case found := <-done:
		return found
	case <-time.After(maxStuck):
		return []finding{{
			"state", fault, fmt.Sprintf("the disk of the state has not answered for %v", maxStuck),
			"find out why the disk is stuck, as while a snapshot is made or when a network disk has lost its server; the daemon goes on once the disk does",
		}}
	}
}

// examinePlace checks the directory of the state, which may not exist yet. If a database
// has the state, it only has the daemon's own files. An empty dir is the user's own.
func examinePlace(dir string, inDatabase bool) []finding {
	other := ""
	if dir == "" {
		other = ", or set XDG_STATE_HOME to a directory of yours"
		var err error
		if dir, err = place.State(); err != nil {
			return []finding{faultOf("state", err)}
		}
	}
	files := dir
	if !inDatabase {
		files = filepath.Join(dir, "db")
	}
	var found []finding
	wrong := func(what, do string) {
		if what != "" {
			found = append(found, finding{"state", fault, what, do})
		}
	}
	wrong(movable(dir))
	wrong(openToOthers(dir, 0o022))
	if !inDatabase {
		wrong(openToOthers(files, 0o077))
	}
	at := nearest(files)
	if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
		do := "make yourself its owner"
		if !errors.Is(err, fs.ErrPermission) {
			do = cmp.Or(exit.SystemHint(&fs.PathError{Path: filepath.Join(at, "db"), Err: err}), do)
		}
		wrong(fmt.Sprintf("%s cannot be written: %v", at, err), do+other)
		return found
	}
	file, err := denied(place.Log(dir), place.StartLock(dir))
	if err == nil && at == files {
		file, err = foreign(files)
	}
	if err != nil {
		do := cmp.Or(exit.SystemHint(err), "check the disk")
		if errors.Is(err, fs.ErrPermission) {
			do = "sudo chown -R " + toOwner(dir)
		}
		wrong(fmt.Sprintf("%s cannot be read and written: %v", file, err), do)
		return found
	}
	room, err := freeSpace(at)
	if _, none := os.Stat(dir); none == nil && err == nil {
		err = place.TryWrite(dir)
	}
	if err != nil {
		wrong(oneLine.Replace(err.Error()), cmp.Or(exit.SystemHint(err), "check the disk"))
		return found
	}
	if room < minRoom {
		wrong(fmt.Sprintf("%s has %d MiB free: a daemon that cannot write stops", at, room>>20),
			fmt.Sprintf("make room for at least %d MiB", minRoom>>20))
	} else if r, known := place.ReadRecord(dir); known && r.Alive() && !inDatabase && pebble.Spent(files) {
		wrong(fmt.Sprintf("the daemon could not write to %s, although %.1f GiB are free, as where a quota or the number of files is used up: it refuses new tasks and larger values", at, float64(room)/(1<<30)),
			"remove files that nobody needs, or raise the quota: the daemon notices it within seconds")
	}
	if at == files && !inDatabase && !place.Open(dir) {
		format, err := pebble.Look(files, dispatch.FormatKey)
		if err == nil {
			err = dispatch.CheckFormat(format)
		}
		if errors.Is(err, engine.ErrNewer) || errors.Is(err, pebble.ErrForeign) { // of the rest, --state tells
			wrong(fmt.Sprintf("%s: %v", files, err), mend(err))
		}
	}
	if len(found) > 0 {
		return found
	}
	what := fmt.Sprintf("%s is yours alone, with %.1f GiB free", files, float64(room)/(1<<30))
	switch {
	case at != files:
		what = fmt.Sprintf("%s does not exist yet and is made by the first daemon; %.1f GiB are free", files, float64(room)/(1<<30))
	case inDatabase:
		what = fmt.Sprintf("%s is for the daemon's own files, with %.1f GiB free; the database has the state", files, float64(room)/(1<<30))
	}
	return []finding{{Check: "state", Level: fine, What: what}}
}

// minRoom is several times the space that logs and compactions of a busy state
// need temporarily.
const minRoom = 256 << 20

func freeSpace(path string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// foreign returns the first file in a directory that this user may not read and write,
// and why.
func foreign(dir string) (string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return dir, err
	}
	files := make([]string, len(list))
	for i, entry := range list {
		files[i] = filepath.Join(dir, entry.Name())
	}
	return denied(files...)
}

// denied returns the first of some files that is there and that this user may not read
// and write, and why.
func denied(files ...string) (string, error) {
	for _, file := range files {
		// A daemon that runs removes files.
		if err := unix.Access(file, unix.R_OK|unix.W_OK); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return "", nil
}

// toOwner is the end of a command that gives this user a file of another user.
func toOwner(path string) string {
	return "\"$(id -un)\" '" + path + "', as after a daemon that was started with sudo"
}

// nearest returns path, or the nearest directory above it that this user sees.
func nearest(path string) string {
	for {
		_, err := os.Lstat(path)
		if hidden := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission); !hidden || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// openToOthers describes a problem with a directory that others can access. A
// directory that does not exist is fine, because it will be created correctly.
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

// movable describes a problem with what is above a directory, which others can move away.
func movable(dir string) (what, do string) {
	above := server.OpenAbove(dir)
	if above == "" {
		return "", ""
	}
	return fmt.Sprintf("others may write in %s, and could move %s away", above, dir), fmt.Sprintf("chmod o-w %s, or chmod +t if they are to write there", above)
}
