package project_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/project"
)

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func of(t *testing.T, dir string) project.Project {
	t.Helper()
	p, err := project.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func runOf(t *testing.T, dir string) string {
	t.Helper()
	run, err := of(t, dir).Run()
	if err != nil {
		t.Fatal(err)
	}
	if err := dispatch.CheckRun(run); err != nil {
		t.Errorf("%s: %v", run, err)
	}
	return run
}

// The main checkout, directories in it, its worktrees and links to it are one
// project. Another repository of the same name is a different project.
func TestARepositoryIsOneProject(t *testing.T) {
	home := t.TempDir()
	shop := mkdir(t, home, "a", "shop")
	git(t, shop, "init", "--quiet")
	git(t, shop, "commit", "--quiet", "--allow-empty", "-m", "first")
	git(t, shop, "worktree", "add", "--quiet", "-b", "feature/x", filepath.Join(home, "elsewhere"))
	if err := os.Symlink(shop, filepath.Join(home, "link")); err != nil {
		t.Fatal(err)
	}
	run := runOf(t, shop)
	if !regexp.MustCompile(`^shop-[0-9a-f]{8}$`).MatchString(run) {
		t.Errorf("the run is called %q", run)
	}
	for _, dir := range []string{
		mkdir(t, shop, "deep", "down"), filepath.Join(home, "elsewhere"), mkdir(t, home, "elsewhere", "deep"),
		filepath.Join(home, "link"), filepath.Join(home, "link", "deep"),
	} {
		if got := runOf(t, dir); got != run {
			t.Errorf("%s is of run %s, want %s", dir, got, run)
		}
		if got := of(t, dir).Root; filepath.Base(got) != "shop" {
			t.Errorf("the root of %s is %s", dir, got)
		}
	}
	other := mkdir(t, home, "b", "shop")
	git(t, other, "init", "--quiet")
	if got := runOf(t, other); got == run || !strings.HasPrefix(got, "shop-") {
		t.Errorf("another repository called shop is of run %s", got)
	}
	if got := project.Branch(filepath.Join(home, "elsewhere", "deep")); got != "feature/x" {
		t.Errorf("the worktree's branch is %q", got)
	}
	if got := project.Branch(shop); got != "main" {
		t.Errorf("the main checkout's branch is %q", got)
	}
	git(t, shop, "checkout", "--quiet", "--detach")
	if got := project.Branch(shop); !regexp.MustCompile(`^[0-9a-f]{10}$`).MatchString(got) {
		t.Errorf("a detached HEAD is told as %q", got)
	}
}

// The worktrees of a bare repository are one project, whatever its name is. A
// submodule is a project of its own, and not the one that it is in.
func TestRepositoriesOfOtherShapes(t *testing.T) {
	home := t.TempDir()
	seed := mkdir(t, home, "seed")
	git(t, seed, "init", "--quiet")
	git(t, seed, "commit", "--quiet", "--allow-empty", "-m", "first")
	for _, name := range []string{"shop.git", "shop/.bare"} {
		bare := filepath.Join(home, name)
		mkdir(t, filepath.Dir(bare))
		git(t, home, "clone", "--quiet", "--bare", seed, bare)
		one, two := filepath.Join(home, "one-"+filepath.Base(bare)), filepath.Join(home, "two-"+filepath.Base(bare))
		git(t, bare, "worktree", "add", "--quiet", "-b", "one", one)
		git(t, bare, "worktree", "add", "--quiet", "-b", "two", two)
		run := runOf(t, one)
		if other := runOf(t, two); other != run || !strings.HasPrefix(run, "shop-") {
			t.Errorf("%s: its worktrees are of %s and %s", name, run, other)
		}
	}
	git(t, seed, "submodule", "--quiet", "add", filepath.Join(home, "shop.git"), "lib")
	lib := filepath.Join(seed, "lib")
	if run := runOf(t, lib); run == runOf(t, seed) || !strings.HasPrefix(run, "lib-") || filepath.Base(of(t, lib).Root) != "lib" {
		t.Errorf("a submodule is of run %s, at %s", run, of(t, lib).Root)
	}
	if around, ok := of(t, lib).Around(); !ok || around.Root != of(t, seed).Root {
		t.Errorf("around a submodule is %+v, %t", around, ok)
	}
	apart := mkdir(t, seed, "apart")
	git(t, apart, "init", "--quiet")
	for _, dir := range []string{seed, apart} {
		if around, ok := of(t, dir).Around(); ok {
			t.Errorf("around %s is %+v", dir, around)
		}
	}
}

// A directory outside of git is a project, and git init does not change its
// run.
func TestADirectoryIsAProject(t *testing.T) {
	dir := mkdir(t, t.TempDir(), "Meine Notizen")
	run := runOf(t, dir)
	if !strings.HasPrefix(run, "Meine-Notizen-") {
		t.Errorf("it is of run %s", run)
	}
	if runOf(t, mkdir(t, dir, "deep")) == run {
		t.Error("a directory below is the same project, and nothing says so")
	}
	mkdir(t, dir, ".git") // git itself requires a HEAD in it
	if project.Branch(dir) != "" || runOf(t, dir) != run {
		t.Error("an empty .git is taken for a repository")
	}
	git(t, dir, "init", "--quiet")
	if got := runOf(t, dir); got != run {
		t.Errorf("with git init its run became %s, and was %s", got, run)
	}
	if project.Branch("relative") != "" {
		t.Error("a directory that is not absolute has a branch")
	}
}

// Outside of a repository, agents above and below the same files are in one project if a
// settings file says where it begins.
func TestASettingsFileMakesDirectoriesOneProject(t *testing.T) {
	top := t.TempDir()
	deep, beside := mkdir(t, top, "plain", "deep", "er"), mkdir(t, top, "plain-2")
	repository := mkdir(t, top, "plain", "repository")
	git(t, repository, "init", "--quiet")
	alone := runOf(t, repository)
	write(t, filepath.Join(top, "plain", project.File), "")
	run := runOf(t, filepath.Join(top, "plain"))
	if got := runOf(t, deep); got != run {
		t.Errorf("below the settings file the run is %s, beside it %s", got, run)
	}
	if got := runOf(t, beside); got == run {
		t.Errorf("a directory beside the project is in its run %s", got)
	}
	if got := runOf(t, repository); got != alone {
		t.Errorf("the run of a repository was %s, and is %s below a settings file", alone, got)
	}
	for dir, name := range map[string]string{filepath.Join(top, "plain"): "deep/er/x.ts", deep: "x.ts"} {
		if key, err := project.Path(dir, name); key != "file:deep/er/x.ts" || err != nil {
			t.Errorf("%s in %s: %s, %v", name, dir, key, err)
		}
	}
	nearest := filepath.Join(deep, project.File)
	write(t, nearest, "")
	if got := runOf(t, deep); got == run {
		t.Error("the nearest settings file does not decide")
	}
	if os.Getuid() != 0 {
		return // only root can give a file away
	}
	if err := os.Lchown(nearest, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if got := runOf(t, deep); got != run {
		t.Error("the settings file of another user decides")
	}
}

// The file of the main checkout names the run, for its worktrees too. An
// unknown key is refused with its position.
func TestTheFileNamesTheRun(t *testing.T) {
	home := t.TempDir()
	shop := mkdir(t, home, "shop")
	git(t, shop, "init", "--quiet")
	git(t, shop, "commit", "--quiet", "--allow-empty", "-m", "first")
	tree := filepath.Join(home, "tree")
	git(t, shop, "worktree", "add", "--quiet", tree)
	write(t, filepath.Join(shop, project.File), "# ours\nrun = \"release-42\"\n")
	write(t, filepath.Join(tree, project.File), "run = \"of the branch\"\n")
	for _, dir := range []string{shop, tree, mkdir(t, shop, "deep")} {
		if got := runOf(t, dir); got != "release-42" {
			t.Errorf("%s is of run %s", dir, got)
		}
	}
	for text, want := range map[string]string{
		"run = \"a b\"":             "run must be 1 to 64 of",
		"\nname = \"x\"":            `.leasehold.toml:2:1: unknown key "name"; the keys are: run, guard.policy`,
		"[guard]\nhold_secs=nan":    `guard.hold_secs = NaN must be from 1 to 86400`,
		"[guard]\nhold_secs=0":      `guard.hold_secs = 0 must be from 1 to 86400`,
		"run = \"x\"\n[guard]\na=1": `.leasehold.toml:3:1: unknown key "guard.a"`,
		"run = ":                    ".leasehold.toml:1:",
		"run = 3":                   ".leasehold.toml:1:7: a value of another type belongs here: run, policy",
		"[guard]\npaths=\"x\"":      ".leasehold.toml:2:7: a value of another type belongs here",
		"[guard]\npolicy=[true]":    ".leasehold.toml:2:8: a value of another type belongs here",
		"[guard]\nhold_secs=\"x\"":  ".leasehold.toml:2:11: a value of another type belongs here",
		"guard = 3":                 ".leasehold.toml:1:9: a value of another type belongs here",
	} {
		write(t, filepath.Join(shop, project.File), text)
		run, err := of(t, shop).Run()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: run %q, %v; want %s", text, run, err, want)
		}
	}
}

// What is not a file, or is too large, is refused without blocking.
func TestReadingCannotBlock(t *testing.T) {
	dir := mkdir(t, t.TempDir(), "shop")
	if err := exec.CommandContext(t.Context(), "mkfifo", filepath.Join(dir, project.File), filepath.Join(dir, ".git")).Run(); err != nil {
		t.Skip(err)
	}
	if _, err := of(t, dir).Run(); err == nil {
		t.Error("a fifo named the run")
	}
	if got := project.Branch(dir); got != "" {
		t.Errorf("a fifo named the branch %q", got)
	}
}
