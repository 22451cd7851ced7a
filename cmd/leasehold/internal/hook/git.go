package hook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/registry/filekey"
)

// runGit refuses a commit of files that others have leased.
func runGit(cmd *cobra.Command) error {
	dir, merged, err := workTree(cmd)
	if err != nil {
		return err
	}
	of, err := project.Of(dir)
	if err != nil {
		return err
	}
	top := topOf(cmd, of, dir)
	files, err := committed(cmd, merged)
	if err != nil {
		return err
	}
	// Agents of the project around a submodule lease its files in their own run.
	for p, ok := of, true; ok; p, ok = p.Around() {
		if err := checkCommit(cmd, p, top, files, len(merged) > 0); err != nil {
			return err
		}
	}
	return nil
}

// checkCommit refuses a commit of files below top that others have leased in the run of
// a project.
func checkCommit(cmd *cobra.Command, of project.Project, top string, files []string, merges bool) error {
	settings, err := of.Settings()
	if err != nil {
		return exit.Hint(err, "git has not made the commit: correct that file; git commit --no-verify commits without a look at the leases")
	}
	run, err := place.Run("", of.Top)
	if err != nil {
		return err
	}
	names := map[string]string{}
	var keys []string
	for _, name := range files {
		key, err := committedKey(of.Top, filepath.Join(top, name))
		if err != nil {
			return err
		}
		if settings.Guard.Guards(strings.TrimPrefix(key, filekey.Prefix)) {
			names[key], keys = name, append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	overrule := reports(settings.Guard)
	first, err := heldByOthers(cmd, map[string]any{"run": run, "overrule": overrule}, keys)
	switch {
	case err == nil, connection.NoneRuns(err):
	case settings.Guard.WithoutDaemon == project.Refuse && !overrule:
		return exit.Hint(fmt.Errorf("nobody can tell whether the files of this commit are leased: %w", err), "git commit --no-verify commits them all the same")
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: did not check whether the files of this commit are leased: %v\n", err)
	}
	if first == "" || overrule {
		return nil
	}
	next := fmt.Sprintf("take the files out (git restore --staged %s, then git commit without -a) or wait until they are released", inShell(names[first]))
	if merges { // without the files it would undo what others have committed
		next = "wait until the files are released, then git commit, or give up with git merge --abort"
	}
	return exit.Hint(errors.New("this commit changes what others have leased, so git has not made it"),
		"%s; LEASEHOLD_GUARD=report git commit, or --no-verify, commits them all the same", next)
}

// heldByOthers shows which of the keys others hold, and returns the first of them. It waits
// for the daemon as long as the other hooks do, for each part of a large commit.
func heldByOthers(cmd *cobra.Command, args map[string]any, keys []string) (first string, err error) {
	d, hello, err := reach(cmd)
	if err != nil {
		return "", err
	}
	within := func() (context.Context, context.CancelFunc) {
		return context.WithTimeoutCause(cmd.Context(), patience, errLate)
	}
	ctx, cancel := within()
	daemon, err := d.Open(ctx, hello, false)
	cancel()
	if err != nil {
		return "", err
	}
	defer daemon.Close()
	for some := range slices.Chunk(keys, maxKeys) {
		args["keys"] = some
		ctx, cancel := within()
		answer, err := connection.Call(ctx, daemon, "hook_check", caller(d, args))
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		cancel()
		if err != nil {
			return first, err
		}
		list, err := connection.Decode[struct {
			Held []struct{ Key, Text string }
		}](answer.Object)
		if err != nil {
			return first, err
		}
		for _, held := range list.Held {
			first = cmp.Or(first, held.Key)
			fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: %s\n", held.Text)
		}
	}
	return first, nil
}

// maxKeys limits how many keys one call names. A commit may have any number of files.
const maxKeys = 1000

// committedKey returns the lease key of a file in a commit. A commit contains a symbolic
// link itself and not its target, so no link is followed: neither the file, nor one that
// has replaced the directory of a file that the commit deletes.
func committedKey(top, path string) (string, error) {
	for at := path; at == path || within(top, at); at = filepath.Dir(at) {
		if info, err := os.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			if name, err := filepath.Rel(top, path); err == nil {
				return keyOf("", name)
			}
		}
	}
	return keyOf(top, path)
}

// inShell returns the name of a file as a word for the shell, because whoever reads the
// advice may run it. Of a name that no line can show it returns a word for it.
func inShell(name string) string {
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "FILE"
	case strings.HasPrefix(name, "-"):
		name = "./" + name
	}
	if strings.ContainsAny(name, " \"'\\$&;()<>|*?[]{}`#~!") {
		return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
	}
	return name
}

// workTree returns what git takes for the top of the work tree of the coming commit, and
// the commits that it merges. Git says both, because GIT_DIR and GIT_WORK_TREE may name other directories
// than those that are above this one.
func workTree(cmd *cobra.Command) (dir string, merged []string, err error) {
	out, err := git(cmd, "rev-parse", "--show-toplevel", "--git-path", "MERGE_HEAD")
	if err != nil {
		return "", nil, err
	}
	dir, head, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n")
	merged, err = mergedInto(head)
	return dir, merged, err
}

// mergedInto returns the commits that the coming commit merges. While git merges it says
// them in the environment. It writes them into a file only when it does not commit.
func mergedInto(file string) (merged []string, err error) {
	text, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return strings.Fields(string(text)), err
	}
	for _, variable := range os.Environ() {
		if commit, ok := strings.CutPrefix(variable, "GITHEAD_"); ok {
			commit, _, _ = strings.Cut(commit, "=")
			merged = append(merged, commit)
		}
	}
	return merged, nil
}

// topOf returns the top of the work tree that git takes to be at dir, in a project. For the hooks of a
// linked worktree git sets GIT_DIR alone. Then it takes any directory for the top, as one
// below the top, to which a hook goes before it calls this.
func topOf(cmd *cobra.Command, of project.Project, dir string) string {
	if of.Top == dir || os.Getenv("GIT_WORK_TREE") != "" {
		return dir
	}
	repository, err := git(cmd, "rev-parse", "--resolve-git-dir", filepath.Join(of.Top, ".git"))
	if err == nil && strings.TrimSuffix(repository, "\n") == os.Getenv("GIT_DIR") {
		return of.Top
	}
	return dir
}

// committed returns the files that the coming commit changes, relative to the top of
// the work tree. For a merge commit these are the files that differ from all that it
// merges.
func committed(cmd *cobra.Command, merged []string) (files []string, err error) {
	for i, against := range append([]string{""}, merged...) {
		args := []string{"diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "-z"}
		if against != "" {
			args = append(args, against)
		}
		out, err := git(cmd, args...)
		if err != nil {
			return nil, err
		}
		differ := map[string]bool{}
		for name := range strings.SplitSeq(out, "\x00") {
			differ[name] = true
			if i == 0 && name != "" {
				files = append(files, name)
			}
		}
		files = slices.DeleteFunc(files, func(name string) bool { return !differ[name] })
	}
	return files, nil
}

// git returns what a command of git prints.
func git(cmd *cobra.Command, args ...string) (string, error) {
	git := exec.CommandContext(cmd.Context(), "git", args...)
	git.Stderr = cmd.ErrOrStderr()
	out, err := git.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return string(out), nil
}

// caller adds the processes that may be this one's client to the arguments of a call.
func caller(d *connection.Dialer, args map[string]any) map[string]any {
	pids := ancestors()
	if !d.Apart() {
		args["pids"] = pids
		return args
	}
	marks := make([]string, len(pids))
	for i, text := range pids {
		pid, _ := strconv.Atoi(text) // as ancestors wrote it
		marks[i] = process.Mark(pid)
	}
	args["marks"] = marks
	return args
}

// ancestors returns the ancestors of this process that may be a client, the nearest
// first. It leaves out shells, because other programs that were started in the same
// shell may have sessions. It also leaves out an init, which is the parent of every shim
// whose client is gone. In a container the client itself may be process 1.
func ancestors() (pids []string) {
	for pid := os.Getppid(); pid > 0 && len(pids) < maxAncestors; pid = process.Find(pid).Parent {
		if !slices.Contains(shells, process.Name(pid)) && !process.Init(pid) {
			pids = append(pids, strconv.Itoa(pid))
		}
	}
	return pids
}

// maxAncestors limits how many processes a call names.
const maxAncestors = 32
