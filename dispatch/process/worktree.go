package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Worktree is a git worktree that an agent works in, on a branch of its own.
type Worktree struct {
	Path   string // its top directory
	Dir    string // the directory in it that corresponds to the requested one
	Branch string
	Base   string // the commit it started from
	Made   bool   // by MakeWorktree; otherwise it was there, with what somebody left in it

	repository string // the git directory of its repository
}

// Branch returns the name of the branch for an actor's worktree: the run and
// the actor's path. Characters that git does not allow in a branch become
// dashes.
func Branch(run, path string) string {
	parts := append([]string{run}, strings.Split(path, "→")...)
	for i, part := range parts {
		part = strings.Map(func(r rune) rune {
			if r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\/`, r) {
				return '-'
			}
			return r
		}, part)
		for _, never := range []string{"..", "@{"} {
			part = strings.ReplaceAll(part, never, "--")
		}
		if strings.HasPrefix(part, ".") {
			part = "-" + part[1:]
		}
		if strings.HasSuffix(part, ".") || strings.HasSuffix(part, ".lock") {
			part += "-"
		}
		parts[i] = part
	}
	return "leasehold/" + strings.Join(parts, "/")
}

// worktrees has a channel for each repository, which is full while git changes its list
// of worktrees: git does not always lock that. It is no mutex, because a hook of git may
// take long, and an actor that waits for this may be cancelled meanwhile.
var worktrees sync.Map

func lockWorktrees(ctx context.Context, repository string) (unlock func(), err error) {
	one, _ := worktrees.LoadOrStore(repository, make(chan struct{}, 1))
	lock := one.(chan struct{})
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// MakeWorktree adds a worktree at path, on a new branch that starts at HEAD, to
// the repository that dir is in. A worktree of that repository that already exists
// there is used as it is, on whatever branch, because it was kept to be continued. If an
// earlier run left a branch of that name with commits in it, a number is added to the
// new name. If there is an error, nothing new is left behind, and what was there stays.
func MakeWorktree(ctx context.Context, dir, path, branch string) (*Worktree, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	w := &Worktree{Path: path, Branch: branch}
	prefix, err := git(ctx, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return nil, fmt.Errorf("worktree for %s: %w", branch, notRepository(dir, err))
	}
	w.Dir = filepath.Join(path, prefix)
	if w.repository, err = git(ctx, dir, "rev-parse", "--path-format=absolute", "--git-common-dir"); err != nil {
		return nil, fmt.Errorf("worktree for %s: %w", branch, err)
	}
	head, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if err != nil {
		return nil, fmt.Errorf("worktree for %s: the repository of %s has no commit to begin at: make one first", branch, dir)
	}
	unlock, err := lockWorktrees(ctx, w.repository)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if w.kept(ctx) {
		if w.unfinished(ctx) {
			return nil, fmt.Errorf("worktree for %s: git did not finish the one at %s: wait if it is still at it, "+
				"else git worktree remove --force --force %[2]s", branch, path)
		}
		// Its base is where its branch left the history of HEAD.
		if w.Base, err = git(ctx, path, "merge-base", "HEAD", head); err != nil {
			w.Base = "" // no common history: it counts as having commits
		}
		return w, os.MkdirAll(w.Dir, 0o755)
	}
	// git takes an empty directory for a new worktree, but not for one that it knows.
	if err := syscall.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("worktree for %s: %s is in the way, and is no worktree of the repository of %s (%w): "+
			"move it if you want it, else remove it", branch, path, dir, err)
	}
	if err := w.forget(ctx, path); err != nil {
		return nil, fmt.Errorf("worktree for %s: %s is gone, but not from git's list: %w", branch, path, err)
	}
	w.Base, w.Made = head, true
	// A branch that an earlier run left with commits stays. This worktree gets
	// the next free name.
	for n := 2; w.dropEmpty(ctx, branch) != nil; n++ {
		if n > maxBranches {
			return nil, fmt.Errorf("worktree for %s: the branch is there already, and so are %d more of its name: "+
				"merge what you want of them, then git branch -D the others", w.Branch, maxBranches-1)
		}
		branch = fmt.Sprintf("%s-%d", w.Branch, n)
	}
	w.Branch = branch
	if _, err := git(ctx, dir, "worktree", "add", "--quiet", "-b", branch, path, head); err != nil {
		err = fmt.Errorf("worktree for %s at %s: %w", branch, path, err)
		if other := inTheWay(ctx, dir, branch); other != "" {
			err = fmt.Errorf("worktree for %s: git makes no branch of that name beside %s, which an earlier run left: "+
				"merge what you want of that, then git branch -D %s", branch, other, other)
		}
		return nil, errors.Join(err, w.undo())
	}
	// The requested directory may contain nothing that git tracks.
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("worktree for %s: %w", branch, err), w.undo())
	}
	return w, nil
}

// WithoutCommit reports whether git says that the repository of dir has no commit yet, so
// that no worktree can begin there. If git cannot tell, the answer is no.
func WithoutCommit(ctx context.Context, dir string) bool {
	if _, err := git(ctx, dir, "rev-parse", "--git-dir"); err != nil {
		return false
	}
	_, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	return err != nil && ctx.Err() == nil
}

// maxBranches is how many branches of one name are tried.
const maxBranches = 1000

// dropEmpty deletes a branch without commits of its own, as an earlier run leaves it. A
// branch with commits is kept, because it has somebody's work.
func (w *Worktree) dropEmpty(ctx context.Context, branch string) error {
	ref := "refs/heads/" + branch
	if _, err := git(ctx, w.repository, "show-ref", "--verify", "--quiet", ref); err != nil {
		return nil
	}
	_, err := git(ctx, w.repository, "merge-base", "--is-ancestor", ref, w.Base)
	if err == nil {
		// Its worktree may have been removed without git.
		tree, _ := git(ctx, w.repository, "for-each-ref", "--format=%(worktreepath)", ref)
		if _, missing := os.Lstat(tree); tree != "" && errors.Is(missing, fs.ErrNotExist) {
			_ = w.forget(ctx, tree) // if it cannot, nor can branch -D
		}
		_, err = git(ctx, w.repository, "branch", "--quiet", "-D", branch) // fails if the branch is checked out
	}
	if err != nil {
		return fmt.Errorf("the branch is there already, from an earlier run: "+
			"merge what you want of it, then remove its worktree if it has one, and git branch -D %s", branch)
	}
	return nil
}

// forget takes a worktree whose directory is gone from git's list, unless it is locked. It
// does not prune that list: the worktrees of others may be on a disk that is away.
func (w *Worktree) forget(ctx context.Context, path string) error {
	_, err := git(ctx, w.repository, "worktree", "remove", path)
	if err != nil && strings.HasSuffix(err.Error(), "is not a working tree") { // git does not know it
		return nil
	}
	return err
}

// inTheWay returns a branch that git cannot have beside one of this name, because a file
// of the one would be a directory of the other, or "". An actor that had no actors
// below it in an earlier run may have some now, and the other way round.
func inTheWay(ctx context.Context, dir, branch string) string {
	for above := path.Dir(branch); above != "."; above = path.Dir(above) {
		if _, err := git(ctx, dir, "show-ref", "--verify", "--quiet", "refs/heads/"+above); err == nil {
			return above
		}
	}
	below, _ := git(ctx, dir, "for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", "refs/heads/"+branch+"/")
	return below
}

// own reports whether the worktree exists and is of the repository. Whoever worked in it can
// have made it one of another repository, whose configuration names programs that git runs.
func (w *Worktree) own(ctx context.Context) bool {
	top, err := git(ctx, w.Path, "rev-parse", "--show-toplevel")
	if err != nil || !samePath(top, w.Path) {
		return false
	}
	dir, err := git(ctx, w.Path, "rev-parse", "--absolute-git-dir")
	return err == nil && samePath(filepath.Dir(filepath.Dir(dir)), w.repository) // it is worktrees/NAME there
}

// kept reports whether the worktree exists. Whoever worked in it may have left its branch.
func (w *Worktree) kept(ctx context.Context) bool {
	if !w.own(ctx) {
		return false
	}
	branch, _ := git(ctx, w.Path, "symbolic-ref", "--quiet", "--short", "HEAD")
	if number, numbered := strings.CutPrefix(branch, w.Branch+"-"); numbered {
		if _, bad := strconv.Atoi(number); bad == nil {
			w.Branch = branch
		}
	}
	return true
}

// unfinished reports whether git has not checked all of the worktree out. git locks it
// until then, and so it stays if git is killed.
func (w *Worktree) unfinished(ctx context.Context) bool {
	lock, _ := git(ctx, w.Path, "rev-parse", "--path-format=absolute", "--git-path", "locked")
	why, _ := os.ReadFile(lock)
	return strings.TrimSpace(string(why)) == "initializing"
}

func samePath(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

// Undo removes a worktree that was made and in which nobody has worked yet, whatever git
// and its hooks have put there.
func (w *Worktree) Undo(ctx context.Context) error {
	unlock, err := lockWorktrees(ctx, w.repository)
	if err != nil {
		return err
	}
	defer unlock()
	return w.undo()
}

// undo also removes what git left of a worktree that it could not finish. git creates the
// branch first, and locks the worktree until it is finished.
func (w *Worktree) undo() error {
	ctx := context.Background() // the caller's context may have ended
	_, _ = git(ctx, w.repository, "worktree", "remove", "--force", "--force", w.Path)
	return errors.Join(os.RemoveAll(w.Path), w.dropEmpty(ctx, w.Branch))
}

// RemoveIfClean removes the worktree and its branch unless there may be work in it:
// changed files, untracked files that are not ignored, commits, or another worktree.
// Otherwise both stay, and why gives the reason, for people.
func (w *Worktree) RemoveIfClean(ctx context.Context) (removed bool, why string, err error) {
	unlock, err := lockWorktrees(ctx, w.repository)
	if err != nil {
		return false, "", err
	}
	defer unlock()
	if _, err := os.Stat(w.Path); errors.Is(err, os.ErrNotExist) {
		return true, "", w.forget(ctx, w.Path) // somebody has removed it; they may still want the branch
	}
	if !w.own(ctx) {
		return false, "it is no longer a worktree of its repository", nil
	}
	// In a submodule git would run what its configuration names.
	status, err := git(ctx, w.Path, "status", "--porcelain", "--ignore-submodules=dirty")
	if err != nil {
		return false, "", fmt.Errorf("worktree %s: %w", w.Path, err)
	}
	if status != "" {
		return false, "it has changes that are not committed", nil
	}
	branch, err := git(ctx, w.Path, "symbolic-ref", "--quiet", "--short", "HEAD")
	if err != nil || branch != w.Branch {
		return false, "it is no longer on its branch " + w.Branch, nil
	}
	head, err := git(ctx, w.Path, "rev-parse", "HEAD")
	if err != nil {
		return false, "", fmt.Errorf("worktree %s: %w", w.Path, err)
	}
	if head != w.Base {
		return false, "its branch " + w.Branch + " has new commits", nil
	}
	for _, look := range []func(context.Context) (string, error){w.hiddenFile, w.lostCommit, w.innerWorktree} {
		if why, err := look(ctx); err != nil {
			return false, "", fmt.Errorf("worktree %s: %w", w.Path, err)
		} else if why != "" {
			return false, why, nil
		}
	}
	if _, err := git(ctx, w.repository, "worktree", "remove", w.Path); err != nil {
		return false, "", fmt.Errorf("remove worktree %s: %w", w.Path, err)
	}
	// Only if the branch has not moved since.
	if _, err := git(ctx, w.repository, "update-ref", "-d", "refs/heads/"+w.Branch, head); err != nil {
		return true, "", fmt.Errorf("remove branch %s: %w", w.Branch, err)
	}
	return true, "", nil
}

// hiddenFile says in which file or submodule git status may have missed a change, or "".
// It shows no change of a file that git was told not to look at: assume-unchanged is a
// small letter, skip-worktree an S, which files outside of a sparse checkout also have.
// It shows no files of a submodule unless that is checked out. If it is, git would run what
// its configuration names, so nobody looks whether there is work in it.
func (w *Worktree) hiddenFile(ctx context.Context) (why string, err error) {
	index, err := git(ctx, w.Path, "ls-files", "-v", "--stage", "-z")
	if err != nil {
		return "", err
	}
	const submodule = "its submodule %s was checked out, and may have work"
	module := ""
	for entry := range strings.SplitSeq(index, "\x00") {
		what, path, _ := strings.Cut(entry, "\t")
		switch tag, mode, _ := strings.Cut(what, " "); {
		case strings.HasPrefix(mode, "160000 "):
			if module = path; !empty(filepath.Join(w.Path, path)) {
				return fmt.Sprintf(submodule, path), nil
			}
		case tag != strings.ToUpper(tag), tag == "S" && there(filepath.Join(w.Path, path)):
			return fmt.Sprintf("git was told not to look at %s, which may have changes", path), nil
		}
	}
	modules, err := git(ctx, w.Path, "rev-parse", "--path-format=absolute", "--git-path", "modules")
	if err != nil || empty(modules) {
		return "", err
	}
	return fmt.Sprintf(submodule, cmp.Or(module, "of an earlier commit")), nil
}

// lostCommit says which commit was made in the worktree and is on no branch, or "". Only
// the worktree's own log and refs have it, which git removes with the worktree.
func (w *Worktree) lostCommit(ctx context.Context) (why string, err error) {
	log, err := git(ctx, w.Path, "rev-list", "--walk-reflogs", "HEAD")
	if err != nil {
		return "", err
	}
	been := slices.Compact(slices.Sorted(slices.Values(strings.Fields(log))))
	lost, err := git(ctx, w.Path, slices.Concat([]string{"rev-list", "--max-count=1", "--abbrev-commit"}, been, []string{"--not", "--exclude=refs/worktree/*", "--exclude=refs/bisect/*", "--exclude=refs/rewritten/*", "--all"})...)
	if err != nil || lost == "" {
		return "", err
	}
	return fmt.Sprintf("its commit %s is on no branch", lost), nil
}

// innerWorktree says which other worktree is below this one, or "". git status does not
// show it if its directory is ignored.
func (w *Worktree) innerWorktree(ctx context.Context) (why string, err error) {
	top, err := git(ctx, w.Path, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	list, err := git(ctx, w.Path, "worktree", "list", "--porcelain")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(list) {
		other, _ := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "worktree ")
		if _, err := os.Lstat(other); strings.HasPrefix(other, top+"/") && err == nil {
			return fmt.Sprintf("the worktree %s is in it", other), nil
		}
	}
	return "", nil
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// empty reports whether there is nothing in a directory, or no directory.
func empty(dir string) bool {
	files, err := os.ReadDir(dir)
	return len(files) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist))
}

// notRepository returns a clearer error if git failed because dir is in no
// repository.
func notRepository(dir string, err error) error {
	if info, statErr := os.Stat(dir); statErr != nil {
		return statErr
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if strings.Contains(err.Error(), "not a git repository") {
		return fmt.Errorf("%s is in no git repository: make it one with git init and a first commit, or do without worktrees", dir)
	}
	return err
}

// outputWait is how long after the end of git its output is read. A process that a hook
// or a filter left may have it open for ever.
const outputWait = time.Second

// maxSaid is how many lines of git's words an error has.
const maxSaid = 5

// git runs git in dir and returns its output without the last newline.
// Variables that name another repository are removed from its environment. New files
// count as changes, also if the user has set status.showUntrackedFiles to no: git worktree
// remove would delete them.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "status.showUntrackedFiles=normal"}, args...)...)
	cmd.Dir = dir
	// Ctrl-C at a terminal goes only to the caller, which lets git finish. If git is not
	// wanted any more, its hooks and filters end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputWait
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_DIR=") && !strings.HasPrefix(v, "GIT_WORK_TREE=") && !strings.HasPrefix(v, "GIT_INDEX_FILE=") &&
			!strings.HasPrefix(v, "GIT_COMMON_DIR=") && !strings.HasPrefix(v, "GIT_PREFIX=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success():
		return strings.TrimRight(stdout.String(), "\n"), nil
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("git is not installed, or not in PATH: worktrees need it")
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	default:
		lines := strings.Split(strings.TrimPrefix(strings.TrimSpace(stderr.String()), "fatal: "), "\n")
		if len(lines) > maxSaid { // on a full disk, one for each file
			lines = append(lines[:maxSaid], fmt.Sprintf("and %d lines more", len(lines)-maxSaid))
		}
		said := cmp.Or(strings.Join(lines, "; "), err.Error())
		return "", fmt.Errorf("git %s: %s", args[0], said)
	}
}
