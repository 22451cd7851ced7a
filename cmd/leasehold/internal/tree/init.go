package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/agent"
	"github.com/leasehold/leasehold/dispatch/manifest"
)

// defaultManifest is the file that init writes by default.
const defaultManifest = "leasehold.toml"

func NewInitCommand() *cobra.Command {
	var profile string
	var force bool
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a manifest to start from",
		Long: `Write a manifest to start from into FILE or leasehold.toml, with comments that
describe the other settings. An existing file is replaced only with --force.

--agent chooses who does the work. With command, which is the default, that is a plain
shell, and the manifest runs unchanged: two workers contend for a file.`,
		Example: `  leasehold init
  leasehold dispatch leasehold.toml

  # a tree of Claude Code agents
  leasehold init --agent claude review.toml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := defaultManifest
			if len(args) > 0 {
				file = args[0]
			}
			text, err := manifest.TemplateFor(profile, file)
			if err != nil {
				return err
			}
			if err := writeNew(file, text, force); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "wrote %s\n", file)
			if profile != agent.Command {
				fmt.Fprintf(out, "say in it, under [root], what is to be done; then\n")
			}
			fmt.Fprintf(out, "check it:  leasehold dispatch --check %s\nrun it:    leasehold dispatch %s\n", file, file)
			return nil
		},
	}
	profile = agent.Command
	view.OneOf(cmd, &profile, "agent", "the built-in `profile` of the agents: "+strings.Join(agent.BuiltIns(), ", "), agent.BuiltIns()...)
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	return cmd
}

// writeNew writes a file, which must not exist unless force is set.
func writeNew(file string, text []byte, force bool) error {
	flags := os.O_CREATE | os.O_WRONLY
	if force {
		flags |= os.O_TRUNC
	} else {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(file, flags, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return exit.Hint(fmt.Errorf("%s is there already", file), "name another file, or replace it with --force")
	case err != nil:
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(file) // a part of a manifest would be in the way of the next try
	}
	return err
}
