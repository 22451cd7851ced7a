package launcher

import (
	"context"
	"fmt"
	"os"

	"github.com/leasehold/leasehold/dispatch/process"
)

// workplace returns the directory in which an actor works. If the actor should
// have a worktree, workplace creates it, on a new branch of the repository that
// contains its directory.
func (a *agentProcess) workplace(ctx context.Context, p place) (directory string, tree *process.Worktree, err error) {
	directory, err = a.directory()
	if err != nil || !a.order.Order.Worktree {
		return directory, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a large worktree, or a hook of git, takes time
		defer cancel()
		select {
		case <-a.asked:
		case <-a.disowned:
		case <-ctx.Done():
		}
	}()
	tree, err = process.MakeWorktree(ctx, directory, p.worktree(), process.Branch(a.launcher.run, a.order.Path))
	if err != nil {
		return "", nil, err
	}
	return tree.Dir, tree, nil
}

// clearWorktree removes the worktree if the actor is done with it and nothing in it must
// be kept. What was there before this life is kept for an actor that never started. An
// error also keeps it. why says why it is kept of an actor that succeeded.
func clearWorktree(ctx context.Context, tree *process.Worktree, started, succeeded bool) (why string) {
	switch {
	case !started && tree.Made:
		_ = tree.Undo(ctx)
	case succeeded:
		_, why, err := tree.RemoveIfClean(ctx)
		if err != nil {
			return err.Error()
		}
		return why
	}
	return ""
}

// directory is where an actor works if it has no worktree of its own: relative
// to the root's.
func (a *agentProcess) directory() (string, error) {
	dir := a.launcher.plan.here(a.order.Order.Directory)
	info, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("its directory: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("its directory: %s is a file", dir)
	}
	return dir, nil
}
