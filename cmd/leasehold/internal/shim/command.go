// Package shim is leasehold mcp, the stdio server that MCP clients start. It
// passes messages between its client and the daemon, and hides restarts of the
// daemon from the client; see shim.
package shim

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/server"
	"github.com/leasehold/leasehold/dispatch/server/tools"
)

// Config has the settings of a shim, from its command line and environment.
type Config struct {
	Target place.Target // the daemon
	Start  bool         // start the daemon if none runs
	Token  string       // of the actor; "": join Run
	Run    string
	Name   string // in Run; "": derived from the client and Directory
	Tools  string // groups of tools to show; "": all

	Directory string // where the client works; "": unknown

	// Outage is how long a request waits for an unreachable daemon before it is
	// refused. Zero: 30 s.
	Outage time.Duration
}

// NewCommand returns the command that MCP clients start.
func NewCommand() *cobra.Command {
	var probing bool
	cfg := Config{Start: true}
	cmd := place.WithServer(&cobra.Command{
		Use:   "mcp",
		Short: "Connect an MCP client to the daemon, over stdio",
		Long: `Connect an MCP client to the daemon, over stdio.

MCP clients start this command. It starts the daemon if none runs, connects again
after a restart of the daemon, and ends with the client. The leases of the client are
then released at once.

The client acts as the actor whose token is in LEASEHOLD_TOKEN. Without one it
joins the run of its project as a new worker of the root layer. The project is
the git repository that the directory is in, with all its worktrees, or else the
directory. To name another run, use --run, LEASEHOLD_RUN, or a file
.leasehold.toml at the root of the main checkout with the line: run = "NAME"`,
		Example: `  # configure the clients on this machine to start it
  leasehold setup

  # only the tools that a model needs to lease what it edits
  leasehold mcp --tools leases

  # another run, under a name of your choice
  leasehold mcp --run release-42 --name reviewer`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Target, err = place.TargetOf(cmd); err != nil {
				return err
			}
			if cfg.Token, err = place.ActorToken(cmd); err != nil {
				return err
			}
			if _, err := tools.ParseGroups(cfg.Tools); err != nil {
				return exit.Usagef("--%v", err)
			}
			if info, err := os.Stat(cfg.Directory); cfg.Directory != "" && (err != nil || !info.IsDir()) {
				return exit.Usagef("--directory %q: must be a directory that exists", cfg.Directory)
			}
			cfg.Directory, _ = filepath.Abs(cfg.Directory) // "" if this process has no working directory any more
			if cfg.Token != "" {                           // not refused: the client of a launched agent can have these in its configuration
				for _, flag := range []string{"run", "name"} {
					if cmd.Flags().Changed(flag) {
						fmt.Fprintf(cmd.ErrOrStderr(), "leasehold mcp: --%s has no effect, because there is a token: this acts as that actor, in its own run\n", flag)
					}
				}
			} else {
				if cfg.Run, err = place.JoinedRun(cmd, cfg.Run, cfg.Directory); err != nil {
					return err
				}
			}
			if probing {
				return probe(cmd.Context(), cfg, cmd.OutOrStdout())
			}
			ctx, stop := untilUnwanted(cmd.Context())
			defer stop()
			return Run(ctx, cfg, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	})
	f := cmd.Flags()
	view.JoinFlag(cmd, &cfg.Run)
	f.StringVar(&cfg.Name, "name", "", "the `name` to join the run under without a token (default: the client's and its directory's)")
	f.StringVar(&cfg.Directory, "directory", "", "the `directory` that the client works in, if it starts this command in another")
	f.StringVar(&cfg.Tools, "tools", "all", "show the client only these `groups` of tools, separated by commas: leases (of the run), layer (its leases and store), tree, messages, queue")
	f.BoolVar(&probing, "probe", false, "say what this would connect to, for leasehold doctor")
	_ = f.MarkHidden("probe")
	return cmd
}

// untilUnwanted returns a context that ends with anything that ends a shim from
// outside: a signal, the end of the process that started it, or the closing of
// its standard output.
func untilUnwanted(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, terminal.Unignored(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)...)
	mortal := terminal.SurviveBrokenPipes()
	go func() { // ends with ctx
		select {
		case s := <-signals:
			cancel(fmt.Errorf("signal: %v", s))
		case <-ctx.Done():
		}
	}()
	go func() { // ends with ctx
		if err := awaitDesertion(ctx, os.Stdout); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() {
		cancel(nil)
		signal.Stop(signals)
		mortal()
	}
}

// Run connects the client at stdin and stdout to the daemon. It returns nil
// when the client has gone or ctx ends. It returns an error only if the
// configuration cannot work. Messages go to stderr.
func Run(ctx context.Context, cfg Config, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := server.CheckSocketPath(cfg.Target.Socket); err != nil {
		return err
	}
	newShim(cfg, stderr).run(ctx, stdin, stdout)
	return nil
}
