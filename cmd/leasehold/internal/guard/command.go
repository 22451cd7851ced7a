// Package guard is leasehold guard: it puts a pre-commit hook into a repository that
// refuses to commit files which others have leased, and takes it back.
//
// A hook that is there already is moved aside, as it is, and called first. Where the
// hooks are git says: core.hooksPath, and worktrees share those of their repository.
package guard

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
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

const (
	mark  = "# leasehold:pre-commit"
	aside = ".before-leasehold" // behind the name of a hook that was there
)

func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Refuse commits of files that others have leased",
		Long: `Refuse commits of files that others have leased, by a pre-commit hook of git.

A commit is refused if somebody else than the committing agent holds the lease of a
file in it, or of a directory above. An agent is known by its client's process; a
person holds no lease. Nothing is refused while no daemon runs, for then nobody
holds a lease. git commit --no-verify passes the hook by.`,
		Example: `  leasehold guard install git
  leasehold guard status git
  leasehold guard uninstall git`,
	}
	for _, c := range []struct {
		use, short string
		run        func(cmd *cobra.Command, hook string) error
	}{
		{"install", "Put the hook into this repository", install},
		{"status", "Say whether the hook is there; exit code 1 if not", status},
		{"uninstall", "Take the hook back; what was there before is there again", uninstall},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: c.use + " git", Short: c.short, Long: c.short + ".",
			Example:   "  leasehold guard " + c.use + " git",
			ValidArgs: []string{"git"}, Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
			RunE: func(cmd *cobra.Command, _ []string) error {
				hook, err := find(cmd)
				if err != nil {
					return err
				}
				return c.run(cmd, hook)
			},
		})
	}
	return cmd
}

// find is where git looks for the hook.
func find(cmd *cobra.Command) (string, error) {
	git := exec.CommandContext(cmd.Context(), "git", "rev-parse", "--git-path", "hooks")
	var said bytes.Buffer
	git.Stderr = &said
	out, err := git.Output()
	if err != nil {
		return "", exit.Hint(fmt.Errorf("git does not say where its hooks are: %s", strings.TrimSpace(said.String())), "run it in a repository")
	}
	dir, err := filepath.Abs(strings.TrimSuffix(string(out), "\n"))
	return filepath.Join(dir, "pre-commit"), err
}

// ours reports whether the hook is there and ours, and whether any is.
func ours(hook string) (our, any bool, err error) {
	if _, err := os.Lstat(hook); errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	text, err := os.ReadFile(hook)
	if errors.Is(err, fs.ErrNotExist) { // a link that leads nowhere
		return false, true, nil
	}
	return bytes.Contains(text, []byte(mark)), true, err
}

func install(cmd *cobra.Command, hook string) error {
	our, any, err := ours(hook)
	if err != nil {
		return err
	}
	if any && !our {
		if _, err := os.Lstat(hook + aside); err == nil {
			return exit.Hint(fmt.Errorf("%s is there, so the hook that is there now cannot be moved to it", hook+aside), "look what it is, and move it away")
		}
		if err := os.Rename(hook, hook+aside); err != nil {
			return err
		}
	}
	if err := write(hook); err != nil {
		if any && !our {
			err = errors.Join(err, os.Rename(hook+aside, hook))
		}
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "installed %s\n", hook)
	if _, err := os.Lstat(hook + aside); err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "the hook that was there is called first: %s\n", hook+aside)
	}
	return nil
}

// write puts the hook in its place at once.
func write(hook string) error {
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(hook), ".pre-commit-*")
	if err != nil {
		return err
	}
	_, err = f.Write(script)
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), hook)
}

func status(cmd *cobra.Command, hook string) error {
	our, any, err := ours(hook)
	text, _ := os.ReadFile(hook)
	switch {
	case err != nil:
		return err
	case our && bytes.Equal(text, script):
		fmt.Fprintf(cmd.OutOrStdout(), "installed: %s\n", hook)
		return nil
	case our:
		fmt.Fprintf(cmd.OutOrStdout(), "of another version of leasehold: %s; leasehold guard install git replaces it\n", hook)
	case any:
		fmt.Fprintf(cmd.OutOrStdout(), "not installed: %s is another hook\n", hook)
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "not installed: there is no %s\n", hook)
	}
	return exit.ErrReported
}

func uninstall(cmd *cobra.Command, hook string) error {
	our, any, err := ours(hook)
	switch {
	case err != nil:
		return err
	case any && !our:
		return exit.Hint(fmt.Errorf("%s is not the hook of leasehold", hook), "remove the call of leasehold hook git from it by hand, if there is one")
	case any:
		if err := os.Remove(hook); err != nil {
			return err
		}
	}
	if err := os.Rename(hook+aside, hook); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "there is no hook of leasehold at %s\n", hook)
	return nil
}
