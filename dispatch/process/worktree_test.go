package process_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold/leasehold/dispatch/process"
)

// repository creates a git repository with one commit.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	write(t, filepath.Join(dir, "README"), "hello\n")
	write(t, filepath.Join(dir, "sub", "file"), "below\n")
	write(t, filepath.Join(dir, ".gitignore"), "*.o\n")
	git(t, dir, "add", ".")
	commit(t, dir, "first")
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func commit(t *testing.T, dir, subject string) {
	t.Helper()
	git(t, dir, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-am", subject)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// hookAtCheckout makes git run a script, in the repository, when it has made a worktree.
func hookAtCheckout(t *testing.T, repo, script string) {
	t.Helper()
	hook := filepath.Join(repo, ".git", "hooks", "post-checkout")
	write(t, hook, "#!/bin/sh\ntree=$PWD\ncd '"+repo+"'\n"+script+"\n")
	if err := os.Chmod(hook, 0o700); err != nil {
		t.Fatal(err)
	}
}

// slowCheckout makes a checkout in the repository take until the test ends. The process
// that it waits for writes its pid to the file that is returned.
func slowCheckout(t *testing.T, repo string) (pid string) {
	t.Helper()
	pid = filepath.Join(t.TempDir(), "pid")
	script := filepath.Join(t.TempDir(), "filter.sh")
	write(t, script, "echo $$ >"+pid+".new\nmv "+pid+".new "+pid+"\nwhile [ -e "+pid+" ]; do sleep 0.1; done\ncat\n")
	write(t, filepath.Join(repo, ".gitattributes"), "README filter=slow\n")
	git(t, repo, "add", ".gitattributes")
	commit(t, repo, "filter")
	git(t, repo, "config", "filter.slow.smudge", "sh "+script)
	return pid
}

// until waits for what should soon be so.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func makeWorktree(t *testing.T, dir, path, branch string) *process.Worktree {
	t.Helper()
	w, err := process.MakeWorktree(t.Context(), dir, path, branch)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// remove expects the worktree to be removed, or kept for the reason why.
func remove(t *testing.T, w *process.Worktree, why string) {
	t.Helper()
	removed, kept, err := w.RemoveIfClean(t.Context())
	if err != nil || removed != (why == "") || !strings.Contains(kept, why) {
		t.Errorf("removed: %v, %q, %v; want %q", removed, kept, err, why)
	}
}

func traces(t *testing.T, repo string) string {
	t.Helper()
	return git(t, repo, "branch", "--list", "leasehold/*") + git(t, repo, "worktree", "list", "--porcelain")
}

func TestWorktreeWithoutWorkLeavesNothing(t *testing.T) {
	repo := repository(t)
	before := traces(t, repo)
	w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/S1/W1")
	if w.Dir != w.Path || git(t, w.Dir, "symbolic-ref", "--short", "HEAD") != "leasehold/run/S1/W1" {
		t.Errorf("it is %+v", w)
	}
	if text, _ := os.ReadFile(filepath.Join(w.Dir, "sub", "file")); string(text) != "below\n" {
		t.Errorf("it has %q", text)
	}
	write(t, filepath.Join(w.Dir, "made.o"), "which git ignores")
	remove(t, w, "")
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
	if _, err := os.Stat(w.Path); !os.IsNotExist(err) {
		t.Errorf("left: %v", err)
	}
	remove(t, w, "") // again
}

// The git status of a worktree does not show what is in the directory of a submodule.
func TestAWorktreeWithSubmodulesIsRemovedUnlessOneWasCheckedOut(t *testing.T) {
	checkout := func(t *testing.T, path string) {
		git(t, path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
	}
	for name, c := range map[string]struct {
		work func(t *testing.T, path string)
		why  string
	}{
		"untouched":               {func(*testing.T, string) {}, ""},
		"a new file":              {func(t *testing.T, path string) { write(t, filepath.Join(path, "new"), "") }, "not committed"},
		"a file in its directory": {func(t *testing.T, path string) { write(t, filepath.Join(path, "module", "new"), "") }, "its submodule module was checked out"},
		"checked out":             {checkout, "its submodule module was checked out"},
		"checked out once": {func(t *testing.T, path string) {
			checkout(t, path)
			git(t, path, "submodule", "--quiet", "deinit", "--force", "module")
		}, "its submodule module was checked out"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			git(t, repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repository(t), "module")
			commit(t, repo, "module")
			before := traces(t, repo)
			w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "w"), "leasehold/r/a")
			c.work(t, w.Path)
			remove(t, w, c.why)
			if exists(w.Path) != (c.why != "") || c.why == "" && traces(t, repo) != before {
				t.Errorf("left: %s", traces(t, repo))
			}
		})
	}
}

func TestWorktreeWithWorkIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		work func(w *process.Worktree)
		why  string
	}{
		"a changed file": {func(w *process.Worktree) { write(t, filepath.Join(w.Dir, "README"), "changed") }, "not committed"},
		"a new file":     {func(w *process.Worktree) { write(t, filepath.Join(w.Dir, "new"), "") }, "not committed"},
		"a new file that status does not show": {func(w *process.Worktree) {
			git(t, w.Dir, "config", "status.showUntrackedFiles", "no")
			write(t, filepath.Join(w.Dir, "new"), "")
		}, "not committed"},
		"a commit":       {func(w *process.Worktree) { write(t, filepath.Join(w.Dir, "README"), "new"); commit(t, w.Dir, "work") }, "new commits"},
		"another branch": {func(w *process.Worktree) { git(t, w.Dir, "switch", "--quiet", "-c", "mine") }, "no longer on its branch"},
		"a commit on no branch": {func(w *process.Worktree) {
			git(t, w.Dir, "switch", "--quiet", "--detach")
			write(t, filepath.Join(w.Dir, "README"), "new")
			commit(t, w.Dir, "work")
		}, "no longer on its branch"},
		"a commit that its branch has left": {func(w *process.Worktree) {
			git(t, w.Dir, "switch", "--quiet", "--detach")
			write(t, filepath.Join(w.Dir, "README"), "new")
			commit(t, w.Dir, "work")
			git(t, w.Dir, "switch", "--quiet", "-")
		}, "is on no branch"},
		"a commit that only a reference of the worktree has": {func(w *process.Worktree) {
			write(t, filepath.Join(w.Dir, "README"), "new")
			commit(t, w.Dir, "work")
			git(t, w.Dir, "update-ref", "refs/worktree/kept", "HEAD")
			git(t, w.Dir, "reset", "--quiet", "--hard", "HEAD~")
		}, "is on no branch"},
		"a change that git takes for none": {func(w *process.Worktree) {
			git(t, w.Dir, "update-index", "--assume-unchanged", "README")
			write(t, filepath.Join(w.Dir, "README"), "changed")
		}, "told not to look at README"},
		"a change that git skips": {func(w *process.Worktree) {
			git(t, w.Dir, "update-index", "--skip-worktree", "README")
			write(t, filepath.Join(w.Dir, "README"), "changed")
		}, "told not to look at README"},
		"a worktree that git ignores": {func(w *process.Worktree) {
			git(t, w.Dir, "worktree", "add", "--quiet", "-b", "inner", "inner.o")
			write(t, filepath.Join(w.Dir, "inner.o", "new"), "")
		}, "inner.o is in it"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
			c.work(w)
			remove(t, w, c.why)
			if _, err := os.Stat(filepath.Join(w.Dir, "README")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAWorktreeWhoseWorkIsElsewhereIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		work string
		left string
	}{
		"a sparse checkout":          {"git sparse-checkout set nothing && test ! -e sub", ""},
		"a commit on another branch": {"git switch -qc mine && echo >>README && git commit -qam work && git switch -q -", "mine"},
		"a stash":                    {"echo >>README && git stash -q", "stash"},
		"no log":                     {"rm $(git rev-parse --git-path logs/HEAD)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			git(t, repo, "config", "user.name", "A")
			git(t, repo, "config", "user.email", "a@example.com")
			w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
			work := exec.Command("sh", "-c", c.work)
			work.Dir = w.Dir
			if out, err := work.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			remove(t, w, "")
			if c.left != "" {
				git(t, repo, "rev-parse", "--verify", c.left)
			}
		})
	}
}

// An agent that may write only in its worktree cannot make git run a program from there.
func TestNothingThatAWorktreeNamesIsRun(t *testing.T) {
	for name, hide := range map[string]func(t *testing.T, repo, path string) string{
		"a repository of its own": func(t *testing.T, _, path string) string {
			if err := os.Remove(filepath.Join(path, ".git")); err != nil {
				t.Fatal(err)
			}
			git(t, path, "init", "--quiet")
			return filepath.Join(path, ".git", "config")
		},
		"a git directory of its own": func(t *testing.T, repo, path string) string {
			git(t, repo, "config", "extensions.worktreeConfig", "true")
			mine := filepath.Join(path, "mine")
			if err := os.CopyFS(mine, os.DirFS(git(t, path, "rev-parse", "--absolute-git-dir"))); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(mine, "commondir"), filepath.Join(repo, ".git"))
			write(t, filepath.Join(path, ".git"), "gitdir: "+mine)
			return filepath.Join(mine, "config.worktree")
		},
		"a submodule of its own": func(t *testing.T, repo, path string) string {
			sub := filepath.Join(path, "module")
			git(t, sub, "init", "--quiet")
			git(t, sub, "pull", "--quiet", repo, "begin")
			return filepath.Join(sub, ".git", "config")
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := repository(t)
			git(t, repo, "branch", "begin")
			git(t, repo, "update-index", "--add", "--cacheinfo", "160000,"+git(t, repo, "rev-parse", "HEAD")+",module")
			git(t, repo, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "--quiet", "-m", "module")
			w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "w"), "leasehold/r/a")
			config := hide(t, repo, w.Path)
			ran := filepath.Join(t.TempDir(), "ran")
			git(t, repo, "config", "--file", config, "core.fsmonitor", "touch "+ran+"; false")
			if removed, why, err := w.RemoveIfClean(t.Context()); removed || why == "" && err == nil {
				t.Errorf("removed: %v, %q, %v", removed, why, err)
			}
			if exists(ran) {
				t.Error("what the worktree names was run")
			}
		})
	}
}

// An actor that is started again finds its kept worktree.
func TestKeptWorktreeIsTakenOver(t *testing.T) {
	repo := repository(t)
	path := filepath.Join(t.TempDir(), "wt")
	first := makeWorktree(t, repo, path, "leasehold/run/W1")
	write(t, filepath.Join(first.Dir, "README"), "half done")
	remove(t, first, "not committed")

	write(t, filepath.Join(repo, "README"), "meanwhile")
	commit(t, repo, "meanwhile")
	again := makeWorktree(t, repo, path, "leasehold/run/W1")
	if text, _ := os.ReadFile(filepath.Join(again.Dir, "README")); string(text) != "half done" {
		t.Errorf("it has %q", text)
	}
	if !first.Made || again.Made {
		t.Errorf("made: %v, then %v", first.Made, again.Made)
	}
	git(t, again.Dir, "checkout", "--quiet", "README")
	remove(t, again, "")
}

// So is one whose branch was left: its work is not committed.
// An actor that is started again finds its kept worktree.
func TestKeptWorktreeIsTakenOverOnWhateverBranch(t *testing.T) {
	for name, leave := range map[string][]string{
		"mine": {"-c", "mine"}, "leasehold/run/W1-mine": {"-c", "leasehold/run/W1-mine"}, "": {"--detach"},
	} {
		repo := repository(t)
		path := filepath.Join(t.TempDir(), "wt")
		makeWorktree(t, repo, path, "leasehold/run/W1")
		git(t, path, append([]string{"switch", "--quiet"}, leave...)...)
		write(t, filepath.Join(path, "new"), "")
		w := makeWorktree(t, repo, path, "leasehold/run/W1")
		if w.Made || !exists(filepath.Join(path, "new")) || git(t, path, "branch", "--show-current") != name {
			t.Errorf("on branch %q: %+v", name, w)
		}
		remove(t, w, "not committed")
		if err := os.Remove(filepath.Join(path, "new")); err != nil {
			t.Fatal(err)
		}
		remove(t, w, "no longer on its branch")
	}
}

// Nobody can tell which of its commits are work.
func TestKeptWorktreeWithAHistoryOfItsOwnStays(t *testing.T) {
	repo, path := repository(t), filepath.Join(t.TempDir(), "wt")
	makeWorktree(t, repo, path, "leasehold/run/W1")
	root := git(t, path, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit-tree", "-m", "from scratch", "HEAD^{tree}")
	git(t, path, "reset", "--quiet", "--hard", root)
	remove(t, makeWorktree(t, repo, path, "leasehold/run/W1"), "new commits")
}

// git was killed while it made it, and so was whoever had asked for it. Nobody knows whether
// the rest of it is still coming.
func TestUnfinishedWorktreeIsNotTakenOver(t *testing.T) {
	repo, path := repository(t), filepath.Join(t.TempDir(), "wt")
	pid := slowCheckout(t, repo)
	add := exec.Command("git", "worktree", "add", "--quiet", "-b", "leasehold/run/W1", path)
	add.Dir = repo
	add.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := add.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "git checks out", func() bool { return exists(pid) })
	if err := syscall.Kill(-add.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = add.Wait()
	git(t, repo, "config", "--unset", "filter.slow.smudge")

	_, err := process.MakeWorktree(t.Context(), repo, path, "leasehold/run/W1")
	if err == nil || !strings.Contains(err.Error(), "git did not finish") {
		t.Fatalf("error: %v", err)
	}
	_, next, _ := strings.Cut(err.Error(), "else git ")
	git(t, repo, strings.Fields(next)...)
	remove(t, makeWorktree(t, repo, path, "leasehold/run/W1"), "")
}

// It may be on a disk that is away, or locked because it is.
func TestWorktreesOfOthersStayOnTheList(t *testing.T) {
	repo, elsewhere := repository(t), t.TempDir()
	path := filepath.Join(t.TempDir(), "wt")
	others := filepath.Join(t.TempDir(), "others")
	git(t, repo, "worktree", "add", "--quiet", "-b", "other", others)
	if err := os.Rename(others, filepath.Join(elsewhere, "others")); err != nil {
		t.Fatal(err)
	}
	before := traces(t, repo)
	remove(t, makeWorktree(t, repo, path, "leasehold/run/W1"), "")
	w := makeWorktree(t, repo, path, "leasehold/run/W1")
	if err := os.RemoveAll(path); err != nil { // without git
		t.Fatal(err)
	}
	remove(t, w, "")
	if list := git(t, repo, "worktree", "list"); strings.Contains(list, path) {
		t.Errorf("one that is gone is on the list: %s", list)
	}
	remove(t, makeWorktree(t, repo, path, "leasehold/run/W1"), "")
	makeWorktree(t, repo, path, "leasehold/run/W1")
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	remove(t, makeWorktree(t, repo, filepath.Join(t.TempDir(), "later run"), "leasehold/run/W1"), "")
	if after := traces(t, repo); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}

	makeWorktree(t, repo, path, "leasehold/run/W1")
	git(t, repo, "worktree", "lock", path)
	if err := os.Rename(path, filepath.Join(elsewhere, "wt")); err != nil {
		t.Fatal(err)
	}
	before = traces(t, repo)
	if _, err := process.MakeWorktree(t.Context(), repo, path, "leasehold/run/W1"); err == nil || !strings.Contains(err.Error(), "locked") {
		t.Errorf("error: %v", err)
	}
	if after := traces(t, repo); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
}

// Nobody has worked in it, so what is in it is nobody's work.
func TestUndoneWorktreeLeavesNothing(t *testing.T) {
	repo := repository(t)
	before := traces(t, repo)
	hookAtCheckout(t, repo, "touch $tree/generated")
	w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	remove(t, w, "not committed")
	if err := os.Remove(filepath.Join(w.Path, ".git")); err != nil { // git removes no such worktree
		t.Fatal(err)
	}
	if err := w.Undo(t.Context()); err != nil || traces(t, repo) != before || exists(w.Path) {
		t.Errorf("%v; left: %s", err, traces(t, repo))
	}
}

func TestCancelledCheckoutLeavesNothing(t *testing.T) {
	repo, path := repository(t), filepath.Join(t.TempDir(), "wt")
	pid := slowCheckout(t, repo)
	before := traces(t, repo)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := make(chan error, 1)
	go func() {
		_, err := process.MakeWorktree(ctx, repo, path, "leasehold/run/W1")
		made <- err
	}()
	until(t, "git checks out", func() bool { return exists(pid) })
	cancel()
	if err := <-made; !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
	if exists(path) {
		t.Error("the directory is left")
	}
	filter := pidIn(t, pid)
	until(t, "the filter has ended with git", func() bool { return !running(filter) })
}

func TestWorktreeOfASubdirectoryIsInThatSubdirectory(t *testing.T) {
	repo := repository(t)
	if err := os.MkdirAll(filepath.Join(repo, "empty", "one"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"sub", "empty/one"} {
		w := makeWorktree(t, filepath.Join(repo, sub), filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
		if w.Dir != filepath.Join(w.Path, sub) {
			t.Errorf("it is %+v", w)
		}
		if info, err := os.Stat(w.Dir); err != nil || !info.IsDir() {
			t.Error(err)
		}
		if err := os.RemoveAll(w.Dir); err != nil {
			t.Fatal(err)
		}
		if again := makeWorktree(t, filepath.Join(repo, sub), w.Path, "leasehold/run/W1"); again.Made || !exists(w.Dir) {
			t.Errorf("taken over: %+v, and its directory exists: %v", again, exists(w.Dir))
		}
		git(t, w.Path, "checkout", "--quiet", ".")
		remove(t, w, "")
	}
}

func TestBranchOfAnEarlierRunIsKeptIfItHasCommits(t *testing.T) {
	repo := repository(t)
	git(t, repo, "branch", "leasehold/run/W1") // from a run that died halfway
	w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	write(t, filepath.Join(w.Dir, "README"), "work")
	commit(t, w.Dir, "work")
	git(t, repo, "worktree", "remove", w.Path)

	path := filepath.Join(t.TempDir(), "wt")
	next := makeWorktree(t, repo, path, "leasehold/run/W1")
	if next.Branch != "leasehold/run/W1-2" {
		t.Errorf("branch %s", next.Branch)
	}
	if text := git(t, repo, "show", "leasehold/run/W1:README"); text != "work" {
		t.Errorf("the earlier work is now %q", text)
	}
	git(t, repo, "branch", "leasehold/run/W1-3", "leasehold/run/W1")
	third := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	if third.Branch != "leasehold/run/W1-4" {
		t.Errorf("branch %s", third.Branch)
	}
	if !exists(next.Path) { // its branch has no commits, but somebody may be at work
		t.Error("the worktree of another run is gone")
	}
	again := makeWorktree(t, repo, path, "leasehold/run/W1") // for the same run, resumed
	if again.Branch != next.Branch || again.Path != next.Path {
		t.Errorf("again: %+v, was %+v", again, next)
	}
	remove(t, again, "")
}

func TestWorktreeThatCannotBeLeavesNothing(t *testing.T) {
	repo, occupied, bare := repository(t), t.TempDir(), t.TempDir()
	write(t, filepath.Join(occupied, "file"), "somebody's")
	git(t, bare, "init", "--quiet", "--initial-branch=main")
	// HEAD has a file where the repository has the directory that is asked for.
	shadowed := filepath.Join(repo, "README")
	if err := os.Remove(shadowed); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(shadowed, 0o755); err != nil {
		t.Fatal(err)
	}
	before := traces(t, repo)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx            context.Context
		dir, path, why string
	}{
		"no repository":        {t.Context(), occupied, "wt", "is in no git repository"},
		"no directory":         {t.Context(), filepath.Join(repo, "none"), "wt", "no such file or directory"},
		"a file":               {t.Context(), filepath.Join(repo, "sub", "file"), "wt", "is not a directory"},
		"a file in HEAD":       {t.Context(), shadowed, "wt", "not a directory"},
		"no commit":            {t.Context(), bare, "wt", "has no commit to begin at"},
		"a path that is taken": {t.Context(), repo, occupied, "is in the way"},
		"a path in the tree":   {t.Context(), repo, filepath.Join(repo, "sub"), "is in the way"},
		"another repository":   {t.Context(), repo, repository(t), "is in the way"},
		"a caller who is gone": {cancelled, repo, "wt", "canceled"},
	} {
		path := c.path
		if path == "wt" {
			path = filepath.Join(t.TempDir(), path)
		}
		if _, err := process.MakeWorktree(c.ctx, c.dir, path, "leasehold/run/W1"); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
	if !exists(filepath.Join(occupied, "file")) {
		t.Error("what was there is gone")
	}
}

func TestOnlyTheFirstWordsOfGitAreTold(t *testing.T) {
	repo := repository(t)
	before := traces(t, repo)
	hookAtCheckout(t, repo, "for n in 1 2 3 4 5 6 7 8; do echo line $n >&2; done; exit 1")
	_, err := process.MakeWorktree(t.Context(), repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	if err == nil || !strings.HasSuffix(err.Error(), "line 4; line 5; and 3 lines more") {
		t.Errorf("error: %v", err)
	}
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
}

// An actor that was a worker in an earlier run may be a lead now, and the other way round.
func TestABranchInTheWayIsNamed(t *testing.T) {
	repo := repository(t)
	git(t, repo, "branch", "leasehold/run/worker")
	git(t, repo, "branch", "leasehold/run/lead/W1")
	before := traces(t, repo)
	for branch, there := range map[string]string{
		"leasehold/run/worker/W1": "leasehold/run/worker",
		"leasehold/run/lead":      "leasehold/run/lead/W1",
	} {
		_, err := process.MakeWorktree(t.Context(), repo, filepath.Join(t.TempDir(), "wt"), branch)
		if err == nil || !strings.HasSuffix(err.Error(), "then git branch -D "+there) {
			t.Errorf("%s beside %s: %v", branch, there, err)
		}
	}
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
}

func TestARepositoryWithoutACommitIsKnown(t *testing.T) {
	none, bare := t.TempDir(), t.TempDir()
	git(t, bare, "init", "--quiet")
	for dir, want := range map[string]bool{repository(t): false, none: false, bare: true} {
		if got := process.WithoutCommit(t.Context(), dir); got != want {
			t.Errorf("%s: %v, want %v", dir, got, want)
		}
	}
}

func TestWithoutGitWorktreesSaySo(t *testing.T) {
	repo := repository(t)
	t.Setenv("PATH", t.TempDir())
	if _, err := process.MakeWorktree(t.Context(), repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1"); err == nil || !strings.Contains(err.Error(), "git is not installed") {
		t.Errorf("error: %v", err)
	}
}

// A hook of git runs with an environment that names the hook's repository.
func TestWorktreeIsOfTheDirectoryWhateverTheEnvironmentSays(t *testing.T) {
	repo, other := repository(t), repository(t)
	t.Setenv("GIT_DIR", filepath.Join(other, ".git"))
	t.Setenv("GIT_WORK_TREE", other)
	t.Setenv("GIT_COMMON_DIR", filepath.Join(other, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(other, ".git", "index"))
	w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE"} {
		os.Unsetenv(name)
	}
	if list := git(t, other, "worktree", "list"); strings.Contains(list, w.Path) {
		t.Errorf("the other repository has it: %s", list)
	}
	remove(t, w, "")
}

// Ctrl-C at a terminal goes to the caller's process group. Git is in another
// group, because a half-finished worktree is useless.
func TestGitIsOutOfTheCallersGroup(t *testing.T) {
	dir := repository(t)
	hookAtCheckout(t, dir, "ps -o pgid= -p $$ >group")
	makeWorktree(t, dir, filepath.Join(t.TempDir(), "tree"), "branch")
	group, err := os.ReadFile(filepath.Join(dir, "group"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(group)) == strconv.Itoa(syscall.Getpgrp()) {
		t.Errorf("git runs in the caller's group, %s", group)
	}
}

// A hook may leave a process that has git's output open, as one that watches files.
func TestAProcessThatAHookLeavesIsNotWaitedFor(t *testing.T) {
	dir := repository(t)
	// It ends with the test's directory, or by itself before a test that waits for it does.
	hookAtCheckout(t, dir, "(for n in $(seq 200); do [ -e '"+dir+"' ] || exit; sleep 0.1; done; touch ended) &")
	makeWorktree(t, dir, filepath.Join(t.TempDir(), "tree"), "branch")
	if _, err := os.Stat(filepath.Join(dir, "ended")); err == nil {
		t.Error("its end was waited for")
	}
}

func TestManyWorktreesAreMadeAtOnce(t *testing.T) {
	repo, where := repository(t), t.TempDir()
	before := traces(t, repo)
	var wg sync.WaitGroup
	for name := range strings.SplitSeq("abcdefghijkl", "") {
		wg.Go(func() {
			w, err := process.MakeWorktree(t.Context(), repo, filepath.Join(where, name), "leasehold/run/"+name)
			if err != nil {
				t.Error(err)
				return
			}
			remove(t, w, "")
		})
	}
	wg.Wait()
	if after := traces(t, repo); after != before {
		t.Errorf("left:\n%s", after)
	}
}

// A hook in one repository may take long.
func TestWorktreesOfOtherRepositoriesAreMadeMeanwhile(t *testing.T) {
	slow, other, where := repository(t), repository(t), t.TempDir()
	hookAtCheckout(t, slow, "touch begun; while [ -e begun ]; do sleep 0.1; done")
	var wg sync.WaitGroup
	defer wg.Wait()
	defer os.Remove(filepath.Join(slow, "begun"))
	wg.Go(func() {
		if _, err := process.MakeWorktree(t.Context(), slow, filepath.Join(where, "slow"), "leasehold/run/slow"); err != nil {
			t.Error(err)
		}
	})
	until(t, "the hook runs", func() bool { return exists(filepath.Join(slow, "begun")) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := process.MakeWorktree(ctx, other, filepath.Join(where, "other"), "leasehold/run/other"); err != nil {
		t.Error(err)
	}
}

// An actor that waits for another's hook may be cancelled meanwhile.
func TestWhoWaitsForGitMayBeCancelled(t *testing.T) {
	repo, where := repository(t), t.TempDir()
	first := makeWorktree(t, repo, filepath.Join(where, "first"), "leasehold/run/first")
	hookAtCheckout(t, repo, "touch begun; while [ -e begun ]; do sleep 0.1; done")
	var wg sync.WaitGroup
	defer wg.Wait()
	defer os.Remove(filepath.Join(repo, "begun"))
	wg.Go(func() {
		if _, err := process.MakeWorktree(t.Context(), repo, filepath.Join(where, "second"), "leasehold/run/second"); err != nil {
			t.Error(err)
		}
	})
	until(t, "the hook runs", func() bool { return exists(filepath.Join(repo, "begun")) })
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	undone := make(chan error, 1)
	go func() { undone <- first.Undo(cancelled) }()
	select {
	case err := <-undone:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for the hook")
	}
}

func TestBranchNamesAreWhatGitAllows(t *testing.T) {
	for _, c := range []struct{ run, path, want string }{
		{"release-42", "S1→W2", "leasehold/release-42/S1/W2"},
		{"a b", "x:y", "leasehold/a-b/x-y"},
		{"..", ".w.lock", "leasehold/--/-w.lock-"},
		{"a/b", "w.", "leasehold/a-b/w.-"},
		{"r", "@{1}", "leasehold/r/--1}"},
		{"r", "né→名", "leasehold/r/né/名"},
	} {
		got := process.Branch(c.run, c.path)
		if got != c.want {
			t.Errorf("%q %q: %q, want %q", c.run, c.path, got, c.want)
		}
		if out, err := exec.Command("git", "check-ref-format", "--branch", got).CombinedOutput(); err != nil {
			t.Errorf("git: %s", out)
		}
	}
}
