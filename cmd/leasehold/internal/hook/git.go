package hook

import (
	"bytes"
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
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/registry/filekey"
)

// runGit refuses a commit of files that others have leased. Git runs it at the top of
// the work tree.
func runGit(cmd *cobra.Command) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	of, err := project.Of(dir)
	if err != nil {
		return err
	}
	files, err := committed(cmd, of.Top)
	if err != nil {
		return err
	}
	// Agents of the project around a submodule lease its files in their own run.
	for p, ok := of, true; ok; p, ok = p.Around() {
		if err := checkCommit(cmd, p, of.Top, files); err != nil {
			return err
		}
	}
	return nil
}

// checkCommit refuses a commit of files below top that others have leased in the run of
// a project.
func checkCommit(cmd *cobra.Command, of project.Project, top string, files []string) error {
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
	d, hello, err := reach(cmd)
	if err != nil {
		return err
	}
	overrule := settings.Guard.Policy == project.Report || os.Getenv("LEASEHOLD_GUARD") == project.Report
	first, err := heldByOthers(cmd, d, hello, map[string]any{"run": run, "overrule": overrule}, keys)
	switch {
	case err == nil, errors.Is(err, connection.ErrNoDaemon): // without a daemon there are no leases
	case settings.Guard.WithoutDaemon == project.Refuse && first == "":
		return exit.Hint(fmt.Errorf("nobody can tell whether the files of this commit are leased: %w", err), "git commit --no-verify commits them all the same")
	default:
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: did not check whether the files of this commit are leased: %v\n", err)
	}
	if first == "" || overrule {
		return nil
	}
	return exit.Hint(errors.New("this commit changes what others have leased, so git has not made it"),
		"take the files out (git restore --staged %s, then git commit without -a) or wait until they are released; LEASEHOLD_GUARD=report git commit, or --no-verify, commits them all the same", inShell(names[first]))
}

// heldByOthers shows which of the keys others hold, and returns the first of them. It waits
// for the daemon as long as the other hooks do, for each part of a large commit.
func heldByOthers(cmd *cobra.Command, d *connection.Dialer, hello server.Hello, args map[string]any, keys []string) (first string, err error) {
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
		if ctx.Err() != nil && err != nil {
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
// link itself and not its target, so the link is not followed.
func committedKey(top, path string) (string, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if name, err := filepath.Rel(top, path); err == nil {
			return keyOf("", name)
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

// committed returns the files that the coming commit changes, relative to the top of
// the work tree. For a merge commit these are the files that differ from both sides.
func committed(cmd *cobra.Command, top string) (files []string, err error) {
	staged := func(against ...string) ([]string, error) {
		git := exec.CommandContext(cmd.Context(), "git", append([]string{"diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "-z"}, against...)...)
		git.Dir, git.Stderr = top, cmd.ErrOrStderr()
		out, err := git.Output()
		if err != nil {
			return nil, fmt.Errorf("git diff --cached: %w", err)
		}
		var list []string
		for name := range bytes.SplitSeq(out, []byte{0}) {
			if len(name) > 0 {
				list = append(list, string(name))
			}
		}
		return list, nil
	}
	if files, err = staged(); err != nil {
		return nil, err
	}
	merge := exec.CommandContext(cmd.Context(), "git", "rev-parse", "--quiet", "--verify", "MERGE_HEAD")
	merge.Dir = top
	if merge.Run() != nil {
		return files, nil
	}
	theirs, err := staged("MERGE_HEAD")
	return slices.DeleteFunc(files, func(name string) bool { return !slices.Contains(theirs, name) }), err
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
// whose client is gone.
func ancestors() (pids []string) {
	for pid := os.Getppid(); pid > 1 && len(pids) < maxAncestors; pid = process.Find(pid).Parent {
		if name := process.Name(pid); !slices.Contains(shells, name) && !slices.Contains(inits, name) {
			pids = append(pids, strconv.Itoa(pid))
		}
	}
	return pids
}

// maxAncestors limits how many processes a call names.
const maxAncestors = 32
