// Command leasehold keeps coding agents that work side by side out of each other's way.
//
// [root] lists the commands; each is in a package below internal. A command returns
// an error, and only [run] prints it and turns it into an exit code.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/build"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/call"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/daemon"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exec"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/guard"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/hook"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/logs"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/manual"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/open"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/setup"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/shim"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/story"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/tree"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
)

func main() {
	// The first signal cancels ctx. A second one ends the process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdin, terminal.NewOutput(os.Stdout), os.Stderr)
	if code == exit.Interrupted {
		terminal.EndByInterrupt()
	}
	os.Exit(code)
}

// run executes the command line and returns the exit code. Its arguments are all that
// it takes from the process, except the environment.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(stdin)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	began := noteRun(cmd)
	called, err := cmd.ExecuteContextC(ctx)
	var lost error // of what was printed
	if out, ok := stdout.(*terminal.Output); ok {
		lost = out.Err()
	}
	switch {
	case lost != nil && (err == nil || !*began): // cobra's own commands print before anything began
		err = lost
	case err != nil && !*began:
		if strings.HasPrefix(err.Error(), "required flag(s) ") {
			err = missingFlag(called)
		}
		err = groupError(err)
		err = exit.Usage(err)
	}
	return exit.Report(ctx, stderr, usage(called), err)
}

// usage returns one line on how to call a command.
func usage(c *cobra.Command) string {
	if c.HasAvailableSubCommands() {
		return c.CommandPath() + " --help lists the commands and options"
	}
	return c.UseLine() + "; " + c.CommandPath() + " --help explains it"
}

// noteRun returns a flag that is set once a command's own function runs. An error
// before that is a usage error. noteRun also replaces cobra's errors for arguments.
func noteRun(cmd *cobra.Command) *bool {
	began := new(bool)
	var wrap func(*cobra.Command)
	wrap = func(c *cobra.Command) {
		if check := c.Args; check != nil {
			c.Args = func(c *cobra.Command, args []string) error {
				if err := check(c, args); err != nil {
					return argsError(c, args, err)
				}
				return nil
			}
		}
		if inner := c.RunE; inner != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				*began = true
				return inner(c, args)
			}
		}
		for _, sub := range c.Commands() {
			wrap(sub)
		}
	}
	wrap(cmd)
	return began
}

const (
	groupDaemon = "daemon"
	groupTree   = "tree"
	groupLook   = "look"
)

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leasehold",
		Short: "Keep coding agents out of each other's way",
		Long: `Leasehold keeps coding agents that work side by side out of each other's way: an agent
leases what it is about to touch. A daemon grants the leases over MCP and releases those
of an agent that crashes or disconnects.

Exit codes: 0 ok; 1 refused or failed; 2 wrong usage; 130 interrupted.

Environment:
  LEASEHOLD_SOCKET   where the daemon listens, as --socket
  LEASEHOLD_SERVER   a server elsewhere, as --server; LEASEHOLD_SERVER_CA is the file
                     with the certificate of its authority, if the system does not
                     trust it
  LEASEHOLD_RUN      the run, as --run
  LEASEHOLD_TOKEN    the token of the actor to act as, in mcp, call, exec and lease
                     check; with --server, that of whoever connects.
                     LEASEHOLD_TOKEN_FILE is a file that has it
  LEASEHOLD_SESSION  the session to share, in call and hook; the one that lease check
                     asks for
  LEASEHOLD_POSTGRES the database that serve keeps its state in, as --postgres
  LEASEHOLD_GUARD    report: hook refuses no write, but records those it would refuse
  NO_COLOR           no colours, also on a terminal
  COLUMNS            how wide tables are if the output is not a terminal`,
		Example: `  # let the agents on this machine take leases; the daemon starts by itself
  leasehold setup

  # see who holds what, as it changes
  leasehold leases --watch

  # see what leasehold promises, shown with a separate daemon
  leasehold spotlight run-contention`,
		Version:       build.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRunE: func(c *cobra.Command, _ []string) error { return emptyFlag(c) },
	}
	cmd.SetVersionTemplate("leasehold {{.Version}}\n")
	cmd.SetFlagErrorFunc(flagError)
	cmd.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	cmd.AddGroup(
		&cobra.Group{ID: groupDaemon, Title: "The daemon and its clients:"},
		&cobra.Group{ID: groupTree, Title: "The tree:"},
		&cobra.Group{ID: groupLook, Title: "Look:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			cmd.AddCommand(c)
		}
	}
	add(groupDaemon, daemon.NewCommand(), daemon.NewStatusCommand(), daemon.NewStopCommand(), daemon.NewRestartCommand(), daemon.NewClusterCommand(), daemon.NewBackupCommand(), daemon.NewMigrateCommand(), shim.NewCommand(), story.NewCommand(), setup.NewCommand(), hook.NewCommand(), guard.NewCommand(), doctor.NewCommand(), build.NewCommand())
	add(groupTree, tree.NewInitCommand(), tree.NewDispatchCommand(), tree.NewLauncherCommand(), tree.NewActorCommand(), view.NewRevokeCommand(), view.NewTokenCommand(), call.NewCommand(), exec.NewCommand())
	add(groupLook, view.NewLeasesCommand(), view.NewLeaseCommand(), view.NewTreeCommand(), view.NewRunsCommand(), view.NewKVCommand(), view.NewQueueCommand(), view.NewEventsCommand(), view.NewHistoryCommand(), logs.NewCommand(), view.NewTopCommand(), open.NewCommand())
	cmd.AddCommand(tree.NewWatchdogCommand(), daemon.NewDetachCommand(), manual.NewCommand())
	addCompletion(cmd)
	completePaths(cmd)
	cmd.InitDefaultHelpCmd()
	refuseUnknown(cmd)
	return cmd
}

// completePaths lets the shell complete the flags that take a file or a directory, unless
// they complete something else. Most that take a path take that of an actor.
func completePaths(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		directive := cobra.ShellCompDirectiveDefault
		switch takes, _ := pflag.UnquoteUsage(f); {
		case takes == "file", f.Name == "socket", f.Name == "path":
		case takes == "directory":
			directive = cobra.ShellCompDirectiveFilterDirs
		default:
			return
		}
		if _, completed := c.GetFlagCompletionFunc(f.Name); !completed {
			view.CompleteWith(c, f.Name, cobra.FixedCompletions(nil, directive))
		}
	})
	for _, sub := range c.Commands() {
		completePaths(sub)
	}
}

// addCompletion adds cobra's command completion, with examples.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // cobra has just made it
	}
	c.Example = "  leasehold completion bash >~/.leasehold-completion"
	examples := map[string]string{
		"bash":       "  source <(leasehold completion bash)",
		"fish":       "  leasehold completion fish | source",
		"powershell": "  leasehold completion powershell | Out-String | Invoke-Expression",
		"zsh":        "  source <(leasehold completion zsh)",
	}
	for _, shell := range c.Commands() {
		shell.Example = examples[shell.Name()]
	}
}
