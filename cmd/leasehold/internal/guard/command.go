// Package guard is leasehold guard: it installs hooks in a repository that
// refuse commits of files which others have leased, and removes them again.
//
// An existing hook is moved aside unchanged and called first. git says where
// the hooks are: core.hooksPath applies, and worktrees share the hooks of their
// repository.
package guard

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
)

//go:embed pre-commit
var script []byte

// Hooks are the names of the hooks. git runs the second one instead of the first
// before it commits a merge that has no conflict.
var Hooks = []string{"pre-commit", "pre-merge-commit"}

const mark = "# leasehold:pre-commit" // in the hook, whatever its version

func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Refuse commits of files that others have leased",
		Long: `Refuse commits of files that others have leased, by two hooks of git: pre-commit, and
pre-merge-commit for a merge.

A commit is refused if another party than the committing agent holds the lease of a
file in it, or of a directory above it. An agent is recognized by its client's process;
a person holds no leases. While no daemon runs, nobody holds a lease and nothing is
refused. With LEASEHOLD_GUARD=report the commit is made, and recorded if it would have
been refused. git commit --no-verify skips the hooks.`,
		Example: `  leasehold guard install git
  leasehold guard status git
  leasehold guard uninstall git`,
	}
	for _, c := range []struct {
		use, short string
		run        func(out io.Writer, hook string) error
	}{
		{"install", "Install the hooks in this repository", install},
		{"status", "Say whether the hooks are installed; exit code 1 if not", status},
		{"uninstall", "Remove the hooks, and restore those that were there before", uninstall},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.use + " git", Short: c.short, Long: c.short + ".",
			Example:   "  leasehold guard " + c.use + " git",
			ValidArgs: []string{"git"}, Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
			RunE: func(cmd *cobra.Command, _ []string) (failed error) {
				hooks, err := Find(cmd.Context(), ".")
				if err != nil {
					return err
				}
				for _, hook := range hooks {
					failed = errors.Join(failed, c.run(cmd.OutOrStdout(), hook))
				}
				return failed
			},
		})
	}
	return cmd
}

// Find returns where git looks for each of [Hooks] of the repository that contains dir.
func Find(ctx context.Context, dir string) (hooks []string, err error) {
	git := exec.CommandContext(ctx, "git", "rev-parse", "--git-path", "hooks")
	git.Dir = dir
	var said bytes.Buffer
	git.Stderr = &said
	out, err := git.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, exit.Hint(errors.New("git is not in the PATH"), "install git, or add its directory to the PATH")
	}
	if err != nil {
		return nil, exit.Hint(fmt.Errorf("git does not say where its hooks are: %s", cmp.Or(strings.TrimSpace(said.String()), err.Error())), "run it in a repository")
	}
	directory := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(directory) { // it is below dir
		directory = filepath.Join(dir, directory)
	}
	directory, err = filepath.Abs(directory)
	for _, name := range Hooks {
		hooks = append(hooks, filepath.Join(directory, name))
	}
	return hooks, err
}

// husky writes its own hooks where git looks for them, at each npm install. Each of them
// runs the file of the same name in the directory above, which belongs to the user. There
// HuskyLine does what our hook does.
const (
	HuskyCall = "leasehold hook git"
	HuskyLine = "! command -v leasehold >/dev/null || " + HuskyCall
)

// Husky reports whether a hook is one that husky writes, and which file that one runs.
func Husky(hook string) (runs string, is bool) {
	dir := filepath.Dir(hook)
	above := filepath.Dir(dir)
	_, err := os.Stat(filepath.Join(dir, "h"))
	return filepath.Join(above, filepath.Base(hook)), filepath.Base(dir) == "_" && (err == nil || filepath.Base(above) == ".husky")
}

// A State says which hook is where git looks for it.
type State string

const (
	None    State = "none"
	Current State = "current" // ours
	Old     State = "old"     // ours, of another version of leasehold
	Other   State = "other"   // somebody else's
)

// Look returns which hook is there, and its content.
func Look(hook string) (State, []byte, error) {
	if _, err := os.Lstat(hook); errors.Is(err, fs.ErrNotExist) {
		return None, nil, nil
	}
	text, err := os.ReadFile(hook)
	switch {
	case errors.Is(err, fs.ErrNotExist): // a link that leads nowhere
		return Other, nil, nil
	case err != nil:
		return None, nil, err
	case bytes.Equal(text, script):
		return Current, text, nil
	case bytes.Contains(text, []byte(mark)):
		return Old, text, nil
	}
	return Other, text, nil
}

// Script returns the text of the hook.
func Script() string { return string(script) }

// Aside returns the path to which an existing hook is moved.
func Aside(hook string) string { return hook + ".before-leasehold" }

// Install installs the hook, and moves another one aside.
func Install(hook string) error {
	state, _, err := Look(hook)
	if err != nil {
		return err
	}
	if state == Other {
		if err := Movable(hook); err != nil {
			return err
		}
		if err := os.Rename(hook, Aside(hook)); err != nil {
			return err
		}
	}
	if err := write(hook); err != nil {
		if state == Other {
			err = errors.Join(err, os.Rename(Aside(hook), hook))
		}
		return err
	}
	return nil
}

// Movable returns an error if another file is where the hook would be moved. The same
// hook may be there: its tool has written it again, over that of leasehold.
func Movable(hook string) error {
	if _, err := os.Lstat(Aside(hook)); err == nil && !same(hook, Aside(hook)) {
		return exit.Hint(fmt.Errorf("%s exists, so the present hook cannot be moved there", Aside(hook)), "look what it is, and move it away")
	}
	return nil
}

func same(one, other string) bool {
	text, err := os.ReadFile(one)
	again, errAgain := os.ReadFile(other)
	return err == nil && errAgain == nil && bytes.Equal(text, again)
}

// write writes the hook in one step, by a rename.
func write(hook string) error {
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(hook), ".pre-commit-*")
	if err != nil {
		return err
	}
	_, err = f.Write(script)
	err = errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), hook)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Uninstall removes the hook and restores the one that was there before.
func Uninstall(hook string) error {
	state, _, err := Look(hook)
	switch {
	case err != nil:
		return err
	case state == Other:
		return exit.Hint(fmt.Errorf("%s is not the hook of leasehold", hook), "remove the call of leasehold hook git from it by hand, if there is one")
	case state != None:
		if err := os.Remove(hook); err != nil {
			return err
		}
	}
	if err := os.Rename(Aside(hook), hook); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func install(out io.Writer, hook string) error {
	if runs, is := Husky(hook); is {
		return exit.Hint(fmt.Errorf("husky writes its own hook over %s at each npm install", hook),
			"leasehold setup git adds a line to %s instead, which husky runs", runs)
	}
	if err := Install(hook); err != nil {
		return err
	}
	fmt.Fprintf(out, "installed %s\n", hook)
	if _, err := os.Lstat(Aside(hook)); err == nil {
		fmt.Fprintf(out, "the hook that was there is called first: %s\n", Aside(hook))
	}
	return nil
}

func status(out io.Writer, hook string) error {
	if runs, is := Husky(hook); is {
		if text, _ := os.ReadFile(runs); bytes.Contains(text, []byte(HuskyCall)) {
			fmt.Fprintf(out, "installed: %s, which husky runs\n", runs)
			return nil
		}
		fmt.Fprintf(out, "not installed: %s, which husky runs, does not call %s; leasehold setup git adds that\n", runs, HuskyCall)
		return exit.ErrReported
	}
	state, _, err := Look(hook)
	switch {
	case err != nil:
		return err
	case state == Current:
		fmt.Fprintf(out, "installed: %s\n", hook)
		return nil
	case state == Old:
		fmt.Fprintf(out, "of another version of leasehold: %s; leasehold guard install git replaces it\n", hook)
	case state == Other:
		fmt.Fprintf(out, "not installed: %s is another hook\n", hook)
	default:
		fmt.Fprintf(out, "not installed: there is no %s\n", hook)
	}
	return exit.ErrReported
}

func uninstall(out io.Writer, hook string) error {
	before, _, err := Look(hook)
	if err == nil {
		err = Uninstall(hook)
	}
	switch {
	case err != nil:
		return err
	case before == None:
		fmt.Fprintf(out, "not installed: there is no %s\n", hook)
	default:
		fmt.Fprintf(out, "removed the hook of leasehold from %s\n", hook)
	}
	return nil
}
