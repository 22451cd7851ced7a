package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
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
// and one with worktrees, which may have work that nobody has merged.
func DeleteDirectories(base, run string) (deleted int, kept []KeptDirectory) {
	for _, path := range runDirectories(base, "*") {
		if filepath.Base(filepath.Dir(path)) != run { // run is no pattern
			continue
		}
		if err := (&Directory{Path: path}).delete(); err != nil {
			kept = append(kept, KeptDirectory{path, err.Error()})
		} else {
			deleted++
		}
	}
	return deleted, kept
}

// DeleteExpired deletes the directories in base of runs that ended more than
// [KeepDirectories] ago, as [DeleteDirectories] does.
func DeleteExpired(base string) {
	for _, path := range runDirectories(base, "*") {
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
		return errors.New("the run was not dispatched to its end: continue it with leasehold dispatch --resume, or delete the directory yourself")
	}
	trees, err := d.worktrees()
	switch {
	case err != nil:
		return err
	case len(trees) > 0:
		return fmt.Errorf("it has worktrees, which may have work that is nowhere else: merge what you want, then git worktree remove %s", trees[0])
	default:
		return d.remove()
	}
}

// worktrees returns the worktrees that were kept.
func (d *Directory) worktrees() (paths []string, err error) {
	actors, err := os.ReadDir(filepath.Join(d.Path, actorsDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, a := range actors {
		p := place{path: filepath.Join(d.Path, actorsDir, a.Name())}
		if tree := p.keptWorktree(); tree != "" {
			paths = append(paths, tree)
		}
	}
	return paths, err
}
