package project_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/registry"
)

func wantPath(t *testing.T, dir, name, want string) {
	t.Helper()
	key, err := project.Path(dir, name)
	if err != nil || key != want {
		t.Errorf("from %s, %q is %q, %v; want %q", dir, name, key, err, want)
		return
	}
	if again, err := project.Path(dir, key); again != key {
		t.Errorf("from %s, the key %q is %q, %v", dir, key, again, err)
	}
}

func noPath(t *testing.T, dir, name, problem string) {
	t.Helper()
	key, err := project.Path(dir, name)
	var bad *registry.ArgumentError
	if !errors.As(err, &bad) || bad.Argument != "path" || !strings.Contains(bad.Problem, problem) {
		t.Errorf("from %s, %q is %q, %v; want a refusal that says %q", dir, name, key, err, problem)
	}
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func symlink(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

func TestEverySpellingOfAPathIsOneKey(t *testing.T) {
	base := realDir(t)
	root := mkdir(t, base, "shop")
	git(t, root, "init", "-q")
	src := mkdir(t, root, "src", "deep")
	write(t, filepath.Join(root, "src", "app.ts"), "")
	outside := mkdir(t, base, "elsewhere")
	symlink(t, "app.ts", filepath.Join(root, "src", "again.ts"))
	symlink(t, filepath.Join(root, "src"), filepath.Join(outside, "in"))
	symlink(t, "../elsewhere", filepath.Join(root, "out"))
	symlink(t, "src/to-come.ts", filepath.Join(root, "dangling"))
	symlink(t, "loop", filepath.Join(root, "loop"))

	for _, name := range []string{
		"src/app.ts", "./src//app.ts", `src\app.ts`, "src/deep/../app.ts", "src/again.ts", "src/app.ts/", "src/missing/../app.ts",
		root + "/src/app.ts", outside + "/in/app.ts", "out/in/app.ts", "file:src/app.ts", "file://" + root + "/src/app.ts",
	} {
		wantPath(t, root, name, "file:src/app.ts")
	}
	wantPath(t, src, "../app.ts", "file:src/app.ts")
	wantPath(t, src, "file:src/app.ts", "file:src/app.ts")
	wantPath(t, src, ".", "file:src/deep")
	wantPath(t, root, "src/new/of-tomorrow.ts", "file:src/new/of-tomorrow.ts")
	wantPath(t, root, "dangling", "file:src/to-come.ts")
	wantPath(t, root, "out/in/../x", "file:x") // .. refers to the target of the link
	wantPath(t, root, "out/x", "file:"+outside+"/x")
	wantPath(t, root, "../elsewhere/x", "file:"+outside+"/x")
	wantPath(t, root, "src/cafe\u0301.ts", "file:src/caf\u00e9.ts")
	wantPath(t, root, "pages/[id].tsx", "file:pages/[id].tsx")
	wantPath(t, root, ".", "file:.")
	wantPath(t, root, "/", "file:/")
	t.Setenv("HOME", outside)
	wantPath(t, root, "~/notes.md", "file:"+outside+"/notes.md")
	wantPath(t, root, "~/", "file:"+outside)
	wantPath(t, root, "file:~/notes.md", "file:~/notes.md")

	for _, name := range []string{"src/**", "src/**/", "out/in/**", `src\**`, root + "/src/**", "file:src/**"} {
		wantPath(t, root, name, "file:src/**")
	}
	wantPath(t, src, "**", "file:src/deep/**")
	wantPath(t, root, "./**", "file:**")
	wantPath(t, src, "file:**", "file:**")
	wantPath(t, root, "out/**", "file:"+outside+"/**")

	noPath(t, root, "", "empty")
	noPath(t, root, "src/*.ts", "take several with lease_acquire_many")
	noPath(t, root, "a\x00b", "printable")
	noPath(t, root, "a\u3164", "printable, and holds U+3164")
	noPath(t, root, "a\xff", "UTF-8")
	noPath(t, root, "loop/x", "symbolic links")
	noPath(t, root, strings.Repeat("x/", 2_000)+"x", "at most 507 bytes") // of directories that do not exist
	noPath(t, root, strings.Repeat("x/", 500_000)+"x", "at most 4096 bytes")
	noPath(t, root, strings.Repeat("long/", 200), "at most")
	noPath(t, root, base+"/**", "above the project")
	noPath(t, root, "/**", "above the project")

	gone := filepath.Join(root, "gone") // as a worktree is in which an agent was started
	wantPath(t, gone, "file:src//app.ts", "file:src/app.ts")
	noPath(t, gone, "x", "must begin with file: ")
	noPath(t, gone, root+"/src/app.ts", gone)
	wantPath(t, root+"/\ufffd", "file:src//app.ts", "file:src/app.ts") // JSON keeps no other bytes
	noPath(t, root+"/\ufffd", "x", "the name of your directory is not valid UTF-8: "+root)

	noPath(t, filepath.Join(root, "loop"), "file:out/x", "directory cannot be read") // and not file:out/x, where a link is
	noPath(t, filepath.Join(root, "loop"), "x", "directory cannot be read")
}

func TestAFileIsTheSameInEveryWorktree(t *testing.T) {
	base := realDir(t)
	root := mkdir(t, base, "shop")
	git(t, root, "init", "-q")
	git(t, root, "commit", "-q", "--allow-empty", "-m", "x")
	inner := filepath.Join(root, ".claude", "worktrees", "fix")
	git(t, root, "worktree", "add", "-q", inner)
	far := filepath.Join(base, "far")
	git(t, root, "worktree", "add", "-q", far)
	other := mkdir(t, root, "vendor", "lib") // a repository within the project that does not belong to it
	git(t, other, "init", "-q")

	for _, from := range []string{root, inner, far} {
		for _, at := range []string{root, inner, far} {
			wantPath(t, from, at+"/src/app.ts", "file:src/app.ts")
			wantPath(t, from, at+"/**", "file:**")
		}
		wantPath(t, from, "src/app.ts", "file:src/app.ts")
	}
	wantPath(t, root, ".claude/worktrees/fix/src/app.ts", "file:src/app.ts")
	wantPath(t, root, "vendor/lib/x.go", "file:vendor/lib/x.go")
	wantPath(t, other, "x.go", "file:x.go")
	wantPath(t, other, root+"/x.go", "file:"+root+"/x.go")

	plain := mkdir(t, base, "notes")
	wantPath(t, plain, "todo.md", "file:todo.md")
	wantPath(t, plain, root+"/x.go", "file:"+root+"/x.go")
}

// If two names of a file differ only in case, the file system appears not to
// distinguish case. Hard links can create such names on any file system.
func TestCaseCountsWhereTheFileSystemTellsItApart(t *testing.T) {
	root := realDir(t)
	plain := mkdir(t, root, "Plain")
	write(t, filepath.Join(plain, "App.ts"), "")
	_, err := os.Lstat(filepath.Join(root, "PLAIN"))
	if insensitive := err == nil; insensitive {
		wantPath(t, root, "PLAIN/app.TS", "file:plain/app.ts")
		return
	}
	wantPath(t, root, "Plain/App.ts", "file:Plain/App.ts")
	wantPath(t, root, "Plain/New.ts", "file:Plain/New.ts")
	wantPath(t, root, "plain/Hidden/App.ts", "file:plain/Hidden/App.ts")
	any := mkdir(t, root, "Any")
	write(t, filepath.Join(any, "App.ts"), "")
	if err := os.Link(filepath.Join(any, "App.ts"), filepath.Join(any, "aPP.TS")); err != nil {
		t.Skip(err)
	}
	wantPath(t, root, "Any/App.ts", "file:Any/app.ts")
	wantPath(t, root, "Any/New-ΣΑΣ.ts", "file:Any/new-σασ.ts")
	wantPath(t, root, "Any/Dir/New.ts", "file:Any/dir/new.ts")
	wantPath(t, root, "Any/App.ts/**", "file:Any/app.ts/**")
}

func TestWithoutADirectoryOnlyTheTextCounts(t *testing.T) {
	wantPath(t, "", "./src//app.ts", "file:src/app.ts")
	wantPath(t, "", `src\..\lib\**`, "file:lib/**")
	wantPath(t, "", "**", "file:**")
	wantPath(t, "", "file:~/x", "file:~/x")
	for _, name := range []string{"/etc/hosts", "../x", "file:/etc/hosts", "a/../../b", "~/x", "~", "./~/**"} {
		noPath(t, "", name, "relative")
	}
}
