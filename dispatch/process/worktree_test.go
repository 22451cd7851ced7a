package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

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
	git(t, again.Dir, "checkout", "--quiet", "README")
	remove(t, again, "")
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
	before := traces(t, repo)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx            context.Context
		dir, path, why string
	}{
		"no repository":        {t.Context(), occupied, "wt", "is in no git repository"},
		"no directory":         {t.Context(), filepath.Join(repo, "none"), "wt", "no such file or directory"},
		"a file":               {t.Context(), filepath.Join(repo, "README"), "wt", "is not a directory"},
		"no commit":            {t.Context(), bare, "wt", "has no commit to begin at"},
		"a path that is taken": {t.Context(), repo, occupied, "already exists"},
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
	w := makeWorktree(t, repo, filepath.Join(t.TempDir(), "wt"), "leasehold/run/W1")
	os.Unsetenv("GIT_DIR")
	os.Unsetenv("GIT_WORK_TREE")
	if list := git(t, other, "worktree", "list"); strings.Contains(list, w.Path) {
		t.Errorf("the other repository has it: %s", list)
	}
	remove(t, w, "")
}

// Ctrl-C at a terminal goes to the caller's process group. Git is in another
// group, because a half-finished worktree is useless.
func TestGitIsOutOfTheCallersGroup(t *testing.T) {
	dir := repository(t)
	hook := filepath.Join(dir, ".git", "hooks", "post-checkout")
	write(t, hook, "#!/bin/sh\nps -o pgid= -p $$ > "+filepath.Join(dir, "group")+"\n")
	if err := os.Chmod(hook, 0o700); err != nil {
		t.Fatal(err)
	}
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
	t.Cleanup(func() { write(t, filepath.Join(dir, "go"), "") })
	hook := filepath.Join(dir, ".git", "hooks", "post-checkout")
	write(t, hook, "#!/bin/sh\ncd "+dir+"\n(for n in $(seq 200); do [ -e go ] && exit; sleep 0.1; done; touch ended) &\n")
	if err := os.Chmod(hook, 0o700); err != nil {
		t.Fatal(err)
	}
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
