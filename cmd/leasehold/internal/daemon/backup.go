package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/memory"
	"github.com/leasehold/leasehold/engine/pebble"
)

// A backup is a directory as serve --state takes it. Until the copy in it is
// complete and proved, it is called unfinished, and serve refuses it.
const (
	finished   = "db"
	unfinished = "db.unfinished"
)

// NewBackupCommand copies the state of a daemon while it runs.
func NewBackupCommand() *cobra.Command {
	var state string
	var asObject bool
	cmd := place.WithSocket(&cobra.Command{
		Use:   "backup DIRECTORY",
		Short: "Copy the state into a directory, while the daemon runs",
		Long: `Copy the state of the daemon into a new or empty directory on its machine. The daemon
goes on meanwhile, and the copy is the state as it was at one instant. If no daemon runs,
the command itself copies the state. At the end the whole copy is read.

The copy is a state like any other: serve --state takes it, and doctor --state proves that
its records and indexes agree. When it is first served, its fencing tokens and the
revisions of its events leap above all that can have been issued since the copy was made,
also if the same copy was served before. Leases and sessions in it are treated as after
any restart. It has the secrets of the state, so only you can read it.

Files that never change are hard links if the directory is on the same disk: such a copy
takes little time and space, and protects from mistakes, but not from the loss of the
disk. What agents have printed is not in it; that is in the directory runs of the state.

If the state is in PostgreSQL, use the tools of the database.`,
		Example: `  leasehold backup ~/leasehold-backup
  leasehold doctor --state ~/leasehold-backup`,
		Args: cobra.ExactArgs(1),
		RunE: exit.Tidily(func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			b := backingUp{dir: dir, progress: cmd.ErrOrStderr()}
			if err := b.run(cmd, state); err != nil {
				return explainBackup(err, dir)
			}
			if asObject {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b.result)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "backed up %s, %s, to %s\n", terminal.Plural(int(b.result.Rows), "row"), terminal.Size(b.result.Bytes), dir)
			return err
		}),
	})
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "`directory` of the state (default that of the daemon)")
	f.BoolVar(&asObject, "json", false, "print JSON, one object per line")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}

// A backingUp is a backup that is being made.
type backingUp struct {
	dir      string
	progress io.Writer
	result   backupResult
}

type backupResult struct {
	Path     string    `json:"path"`
	BegunAt  time.Time `json:"begun_at"`
	Daemon   bool      `json:"daemon"` // it ran, and made the copy
	Rows     int64     `json:"rows"`
	Bytes    int64     `json:"bytes"` // of keys and values
	Checksum string    `json:"checksum"`
}

// own is a directory that no other backup has. The copy is in it until it is finished.
func (b *backingUp) own() string { return filepath.Join(b.dir, unfinished) }

func (b *backingUp) copy() string { return filepath.Join(b.own(), finished) }

func (b *backingUp) run(cmd *cobra.Command, state string) (err error) {
	made, err := emptyDirectory(b.dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(b.own(), 0o700); errors.Is(err, fs.ErrExist) {
		return exit.Hint(fmt.Errorf("another backup is being made in %s", b.dir), "nothing was changed: name another directory")
	} else if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, b.discard())
		if made {
			_ = os.Remove(b.dir) // fails if there is more in it by now
		}
	}()
	ctx := cmd.Context()
	b.result.Path, b.result.BegunAt = b.dir, time.Now().UTC() // before the instant whose state it has
	if err := b.watch(func() error { return b.make(cmd, state) }); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := b.prove(ctx); err != nil {
		return err
	}
	if err := os.Rename(b.copy(), filepath.Join(b.dir, finished)); err != nil {
		return err
	}
	return errors.Join(os.Remove(b.own()), syncDirectory(b.dir))
}

// stopWithin is how long a daemon may take to notice that its caller is gone.
const stopWithin = 5 * time.Second

// discard removes what there is of the copy. It waits until the daemon does not write
// there any more: what is removed before that can come back.
func (b *backingUp) discard() error {
	lock, err := os.Open(b.own())
	if err != nil {
		return os.RemoveAll(b.own()) // no error if it is gone
	}
	defer lock.Close() // and with it the lock
	for until := time.Now().Add(stopWithin); ; time.Sleep(20 * time.Millisecond) {
		switch locked, err := process.TryLock(lock); {
		case locked || err != nil: // without locks nobody can tell
			return os.RemoveAll(b.own())
		case time.Now().After(until):
			b.note("the daemon has not stopped making the copy within %v: remove %s once it has", stopWithin, b.own())
			return nil
		}
	}
}

// emptyDirectory makes a directory unless there is an empty one.
func emptyDirectory(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, os.Mkdir(dir, 0o700) // what is above it may be a disk that is not mounted
	case err != nil:
		return false, err
	case len(entries) > 0:
		first, next := entries[0].Name(), "name a directory that is new or empty"
		if first == unfinished { // killed, or still running: nobody can tell
			next = "that is a backup which was not finished; remove it if no leasehold backup is making it, or name another directory"
		}
		return false, exit.Hint(fmt.Errorf("%s is not empty: %s is in it", dir, first), "nothing was changed: %s", next)
	}
	return false, place.CheckPrivate(dir)
}

// make copies the state of the daemon, or a state that no daemon serves.
func (b *backingUp) make(cmd *cobra.Command, state string) error {
	d, err := connection.For(cmd)
	if err != nil {
		return err
	}
	if state == "" {
		place.NoteLocal(cmd)
		state = d.State()
	} else if r, ok := place.ReadRecord(state); ok && r.Alive() {
		d = connection.NewDialer(place.Target{Socket: r.Socket, Named: true, State: r.State})
	} else {
		return b.closed(cmd.Context(), state)
	}
	c, err := d.Open(cmd.Context(), server.Hello{Operator: true}, false)
	if errors.Is(err, connection.ErrNoDaemon) {
		return b.closed(cmd.Context(), state)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	b.result.Daemon = true
	if _, err = connection.Call(cmd.Context(), c, "operator_backup", map[string]any{"path": b.copy()}); err != nil {
		return err
	}
	switch here, err := pebble.Exists(b.copy()); {
	case err != nil:
		return fmt.Errorf("the daemon has made the copy, and it cannot be read: %w", err)
	case !here:
		return exit.Hint(fmt.Errorf("the daemon has made the copy, and it is not in %s: the daemon has other directories than this command", b.copy()),
			"run leasehold backup where the daemon runs, as in its container")
	}
	return nil
}

// closed copies a state that no daemon serves. Clients that would start one wait.
func (b *backingUp) closed(ctx context.Context, state string) error {
	if err := place.CheckPrivate(state); err != nil {
		return err
	}
	switch exists, err := pebble.Exists(filepath.Join(state, finished)); {
	case err != nil:
		return err
	case !exists:
		return exit.Hint(fmt.Errorf("no daemon runs, and there is no state in %s", state), "name the directory that serve --state has with --state, or the socket of a daemon with --socket")
	}
	lock, err := os.OpenFile(place.StartLock(state), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // and with it the lock
	switch locked, err := process.TryLock(lock); {
	case err != nil:
		return err
	case !locked:
		return exit.Hint(fmt.Errorf("somebody is starting the daemon of %s", state), "try again")
	}
	return pebble.Backup(ctx, pebble.Options{Dir: filepath.Join(state, finished), Logf: b.note}, b.copy())
}

func (b *backingUp) note(format string, args ...any) {
	fmt.Fprintf(b.progress, "leasehold: "+format+"\n", args...)
}

// watch says every second how much is copied while do runs.
func (b *backingUp) watch(do func() error) error {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(b.progress, "%s copied\n", terminal.Size(sizeOf(b.copy())))
			case <-done:
				return
			}
		}
	})
	err := do()
	close(done)
	wg.Wait()
	return err
}

// sizeOf returns the size of the files below a directory, as far as they can be read.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}

// prove opens the copy as a daemon would, reads all of it and notes that it is a backup.
func (b *backingUp) prove(ctx context.Context) (err error) {
	copied, err := pebble.OpenStore(pebble.Options{Dir: b.copy(), Logf: b.note})
	if err != nil {
		return err
	}
	told := time.Now()
	sum, err := memory.SumOf(ctx, copied, func(records int64) {
		if now := time.Now(); now.Sub(told) >= time.Second {
			told = now
			fmt.Fprintf(b.progress, "%d rows read again\n", records)
		}
	})
	if err == nil {
		err = memory.Put(copied, engine.CopyRow(b.result.BegunAt))
	}
	b.result.Rows, b.result.Bytes, b.result.Checksum = sum.Hot+sum.Cold, sum.Bytes, hex.EncodeToString(sum.Checksum[:])
	if err := errors.Join(err, copied.Close()); err != nil {
		return err
	}
	return pebble.Trim(b.copy())
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// explainBackup adds to an error of a backup what to do.
func explainBackup(err error, dir string) error {
	var hinted exit.Hinted
	switch {
	case errors.As(err, &hinted):
		return err
	case strings.Contains(err.Error(), syscall.ENOSPC.Error()), strings.Contains(err.Error(), syscall.EDQUOT.Error()): // the daemon's error comes as text
		return exit.Hint(err, "nothing is left of the copy: %s", exit.SystemHint(&fs.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}))
	case strings.Contains(err.Error(), syscall.EFBIG.Error()):
		return exit.Hint(err, "nothing is left of the copy: %s", exit.SystemHint(syscall.EFBIG))
	case connection.IsCode(err, "FORBIDDEN"):
		return exit.Hint(err, "after the database was restored, run leasehold cluster restored before the first server starts")
	case errors.Is(err, pebble.ErrInside):
		return exit.Hint(err, "name a directory elsewhere")
	case errors.Is(err, engine.ErrLocked):
		return exit.Hint(err, "that daemon can make the copy: name its socket with --socket, and leave out --state")
	}
	return explain(err)
}

// backUp copies the state of this daemon. The directory above the copy must be there:
// otherwise the caller has other directories than this daemon, and would never find it,
// or it has given up. The directory is locked meanwhile, so that the caller does not
// remove it.
func backUp(ctx context.Context, eng *pebble.Engine, dir string, log zerolog.Logger) error {
	above := filepath.Dir(dir)
	lock, err := os.Open(above)
	if err == nil {
		defer lock.Close() // and with it the lock
		if locked, err := process.TryLock(lock); !locked && err == nil {
			return fmt.Errorf("somebody else uses %s", above)
		}
		_, err = os.Stat(above) // its caller may have removed it before it was locked
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s for the copy where the daemon runs: run leasehold backup there, as in its container", above)
	}
	if err := place.CheckPrivate(above); err != nil {
		return err
	}
	began := time.Now()
	if err := eng.Backup(ctx, dir); err != nil {
		log.Error().Err(err).Str("directory", dir).Msg("the state was not backed up")
		return err
	}
	log.Info().Str("directory", dir).Dur("took", time.Since(began)).Msg("the state is copied")
	return nil
}

// refuseUnfinished refuses a directory with a backup that was not finished, and the
// directory within a state: both would be taken for new states.
func refuseUnfinished(state string) error {
	if inside, err := pebble.Exists(state); err != nil {
		return err
	} else if inside {
		return exit.Hint(fmt.Errorf("%s is what a state has in its directory db, and not the state itself", state), "name the directory above it: --state %s", filepath.Dir(state))
	}
	if exists, err := pebble.Exists(filepath.Join(state, finished)); exists || err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(state, unfinished)); err != nil {
		return nil
	}
	return exit.Hint(fmt.Errorf("%s has a backup that was not finished", state), "use another backup, and remove this one")
}
