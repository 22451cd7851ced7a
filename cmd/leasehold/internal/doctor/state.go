package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/engine/pebble"
	"github.com/leasehold/leasehold/queue"
)

// maxFaults is how many faults of a state are shown. If there are thousands,
// the first ones show the reason.
const maxFaults = 50

// examineState verifies that the records and the indexes of a state agree. The
// error says why it could not check. Messages of the engine when it opens the
// state, for example about a log whose end is missing, become notes. It calls
// progress from time to time with the number of records read.
func examineState(ctx context.Context, dir string, progress func(records int)) ([]finding, error) {
	db := filepath.Join(dir, "db")
	if err := checkState(dir, db); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var found []finding
	eng, err := pebble.Open(pebble.Options{Dir: db, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, finding{Check: "state", Level: note, What: fmt.Sprintf(format, args...), Do: "if a crash or a full disk does not explain it, check the disk, and compare with a copy of the state"})
	}})
	if errors.Is(err, engine.ErrLocked) {
		return nil, exit.Hint(err, "stop that daemon, or look at a copy of its directory made while it was stopped; without --state, doctor looks at what can be seen while it runs")
	}
	if cannotWrite(err) {
		return nil, exit.Hint(err, "that is no fault of the state, but doctor writes there when it opens a state: make room, or look at a copy where you can write")
	}
	if errors.Is(err, syscall.EIO) {
		return nil, exit.Hint(err, "%s; that says nothing of the state: look at a copy on a disk that works", cmp.Or(exit.SystemHint(err), "the disk fails"))
	}
	if unread := cannotLook(err); unread != nil {
		return nil, unread
	}
	var size string
	if err == nil {
		size, err = proveState(ctx, eng, progress)
		err = errors.Join(err, eng.Close())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if unread := cannotLook(err); unread != nil {
		return nil, unread
	}
	faults := flatten(err)
	if len(faults) == 0 {
		return append([]finding{{Check: "state", Level: fine, What: fmt.Sprintf("%s: records and indexes agree: %s", dir, size)}}, found...), nil
	}
	same := func(a, b error) bool { return a.Error() == b.Error() } // two checks found the same fault
	faults = slices.CompactFunc(faults, same)
	notes := found
	found = nil
	for _, one := range faults[:min(len(faults), maxFaults)] {
		found = append(found, finding{Check: "state", Level: fault, What: one.Error(), Do: mend(one)})
	}
	if more := len(faults) - maxFaults; more > 0 {
		found = append(found, finding{Check: "state", Level: fault, What: "and " + terminal.Plural(more, "fault") + " more"})
	}
	return append(found, notes...), nil
}

// cannotLook returns err if this process lacks what it needs to read the state, which
// says nothing about the state.
func cannotLook(err error) error {
	for _, reason := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, reason) {
			return exit.Hint(err, "%s; that says nothing of the state", cmp.Or(exit.SystemHint(err), "the system has no more for this process"))
		}
	}
	return nil
}

// cannotWrite reports whether err says that nothing can be written, which says nothing
// about what was written before.
func cannotWrite(err error) bool {
	for _, reason := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, fs.ErrPermission} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

// checkState returns an error if opening the state would create it, or change
// the owner of its files.
func checkState(dir, db string) error {
	info, err := os.Stat(db)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return exit.Hint(fmt.Errorf("no state in %s", dir), "name the directory that serve --state names; it contains one named db")
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", db)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Getuid() {
		return exit.Hint(fmt.Errorf("%s belongs to user %d", db, stat.Uid), "run doctor as that user: files of another user would keep its daemon from opening the state")
	}
	return nil
}

// proveState runs all checks. It ends no sessions, because only the daemon can
// know whether their processes still live.
func proveState(ctx context.Context, eng *pebble.Engine, progress func(records int)) (size string, err error) {
	defer func() { // the rules panic on some damaged records
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", engine.ErrCorrupt, r)
		}
	}()
	state, err := dispatch.Open(ctx, eng, dispatch.Options{Alive: func(process.Peer) bool { return true }, Examine: true})
	if err != nil {
		return "", errors.Join(err, eng.Prove(ctx, progress))
	}
	if err := errors.Join(eng.Prove(ctx, progress), state.Prove(ctx, progress)); err != nil {
		return "", err
	}
	return sizeOf(ctx, state)
}

// sizeOf describes how much the state contains.
func sizeOf(ctx context.Context, state *dispatch.State) (string, error) {
	runs, err := state.Runs(ctx, "")
	if err != nil {
		return "", err
	}
	var actors, leases, tasks int
	for _, r := range runs {
		actors += len(r.Actors)
		for _, a := range r.Actors {
			leases += a.Leases
		}
		of, err := state.RunTasks(ctx, r.Name)
		if err != nil {
			return "", err
		}
		for after, more := "", true; more; {
			var queues []queue.Stats
			if queues, more, err = of.Stats(ctx, "", after, queue.MaxStats); err != nil {
				return "", err
			}
			for _, q := range queues {
				after = q.Queue
				tasks += int(q.ReadyTotal() + q.Delayed + q.InProgress + q.Completed + q.Failed + q.Dead + q.Cancelled + q.Corrupt)
			}
		}
	}
	return fmt.Sprintf("%s, %s, %s, %s", terminal.Plural(len(runs), "run"), terminal.Plural(actors, "actor"), terminal.Plural(leases, "lease"), terminal.Plural(tasks, "task")), nil
}

// flatten returns the individual errors of joined errors.
func flatten(err error) (list []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() { // an error that wraps several
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		list = append(list, flatten(one)...)
	}
	return list
}

// mend recommends what to do about a fault of a state.
func mend(err error) string {
	switch {
	case errors.Is(err, engine.ErrNewer):
		return "install the version that wrote it, or a later one; this is " + build.Version()
	case errors.Is(err, pebble.ErrForeign):
		return "name the directory of a state, or one that is new: nothing was changed there"
	case errors.Is(err, engine.ErrCorrupt):
		return "restore the directory from a copy, or move it away to start without its runs, leases and tasks"
	}
	return "keep a copy of the directory, which shows the fault; then restore an older one, or move it away to start"
}
