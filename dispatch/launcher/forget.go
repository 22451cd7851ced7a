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
	for _, path := range runDirectories(base, run) {
		d := &Directory{Path: path}
		f, err := d.RunFile()
		if err == nil && (f.Run != run || f.Socket != daemon) {
			continue
		}
		if err == nil {
			err = d.delete()
		}
		if err != nil {
			kept = append(kept, KeptDirectory{path, err.Error()})
		} else {
			deleted++
		}
	}
	return deleted, kept
}

// RunsThrough returns the names of the runs that have directories in base and whose agents
// reached that daemon.
func RunsThrough(base, daemon string) (names []string) {
	for _, path := range runDirectories(base, "*") {
		if f, err := (&Directory{Path: path}).RunFile(); err == nil && f.Socket == daemon {
			names = append(names, f.Run)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DeleteExpired deletes the directories in base of runs that ended more than
// [KeepDirectories] ago, as [DeleteDirectories] does, until ctx ends. Thousands take
// seconds.
func DeleteExpired(ctx context.Context, base string) {
	for _, path := range runDirectories(base, "*") {
		if ctx.Err() != nil {
			return
		}
		summary, err := os.Stat(filepath.Join(path, summaryFile))
		if err == nil && time.Since(summary.ModTime()) > KeepDirectories {
			_ = (&Directory{Path: path}).delete() // what stays is named when somebody deletes it
		}
	}
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
