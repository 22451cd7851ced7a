package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
)

// KeepDirectories is how long the directory of a run is kept after the run has ended.
const KeepDirectories = 30 * 24 * time.Hour

// A KeptDirectory is a run directory that was not deleted.
type KeptDirectory struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// DeleteDirectories deletes the directories in base of a run that has ended. Those in
// which somebody may still want something stay: the directory of a run that is not over,
// and one with worktrees, which may have work that nobody has merged. daemon is where the
// run's agents reached their daemon: another daemon may have a run of that name, too.
func DeleteDirectories(base, run, daemon string) (deleted int, kept []KeptDirectory) {
	if dispatch.CheckRun(run) != nil { // it would be a pattern, or another directory
		return 0, nil
	}
	for _, d := range runDirectories(base, run) {
		f, err := d.RunFile()
		if err == nil && (f.Run != run || f.Socket != daemon) {
			continue
		}
		if err == nil {
			err = d.delete()
		}
		if err != nil {
			kept = append(kept, KeptDirectory{d.Path, err.Error()})
		} else {
			deleted++
		}
	}
	return deleted, kept
}

// RunsThrough returns the names of the runs that have directories in base and whose agents
// reached that daemon.
func RunsThrough(base, daemon string) (names []string) {
	for _, d := range runDirectories(base, "*") {
		if f, err := d.RunFile(); err == nil && f.Socket == daemon {
			names = append(names, f.Run)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TidyUp ends what is left of runs that have a directory in base and whose dispatcher was
// killed together with its watchdog. With expired, it also deletes the directories of runs
// that ended more than [KeepDirectories] ago, as [DeleteDirectories] does. Thousands take
// seconds, so it stops when ctx ends.
func TidyUp(ctx context.Context, base string, expired bool) error {
	var errs []error
	for _, d := range runDirectories(base, "*") {
		if ctx.Err() != nil {
			break
		}
		if summary, err := os.Stat(filepath.Join(d.Path, summaryFile)); err == nil {
			if expired && time.Since(summary.ModTime()) > KeepDirectories {
				_ = d.delete() // what stays is named when somebody deletes it
			}
		} else if f, left := d.left(); left {
			if _, err := process.End(ctx, f.mark(), 0); err != nil {
				errs = append(errs, fmt.Errorf("what is left of the run in %s: %w", d.Path, err))
			}
		}
	}
	return errors.Join(errs...)
}

// left reports whether the run began, has no summary and has lost its dispatcher. Its processes
// may still exist.
func (d *Directory) left() (f RunFile, left bool) {
	f, err := d.RunFile()
	return f, err == nil && f.RunID != "" && !f.Dispatcher.Alive() && !d.Finished()
}

func (d *Directory) delete() error {
	if err := d.lock(); err != nil {
		return err
	}
	defer func() { _ = d.close() }()
	if !d.Finished() {
		switch f, _ := d.RunFile(); {
		case f.Dispatcher.Alive(): // it may be the launcher of a machine, which has no lock
			return d.dispatchedBy("")
		case f.Machine != "":
			return errors.New("its launcher did not serve the run to its end: delete the directory yourself")
		}
		return errors.New("the run was not dispatched to its end: if none of its processes is left, delete the directory yourself")
	}
	tree, err := d.worktree()
	switch {
	case err != nil:
		return err
	case tree != "":
		return fmt.Errorf("it has worktrees, which may have work that is nowhere else: merge what you want, then git worktree remove %s", tree)
	default:
		return d.remove()
	}
}

// worktree returns one of the worktrees that were kept, or "" if there is none.
func (d *Directory) worktree() (string, error) {
	actors, err := os.ReadDir(filepath.Join(d.Path, actorsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	for _, a := range actors {
		if !a.IsDir() { // such as .DS_Store
			continue
		}
		p := place{path: filepath.Join(d.Path, actorsDir, a.Name())}
		if tree := p.keptWorktree(); tree != "" {
			return tree, nil
		}
	}
	return "", err
}
