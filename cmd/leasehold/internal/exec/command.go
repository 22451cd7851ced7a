// Package exec is leasehold exec: a program that runs while a lease is held.
package exec

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// Exit codes of exec, besides those of the program it runs.
const (
	exitNotObtained   = 75 // EX_TEMPFAIL of sysexits.h: try again later
	exitLost          = 76
	exitNotExecutable = 126 // these as shells have them
	exitNotFound      = 127
	exitSignalled     = 128 // and the signal
)

// execConfig is what exec is told by its command line.
type execConfig struct {
	keys  []string
	layer bool
	ttl   time.Duration
	wait  time.Duration
	argv  []string
}

func NewCommand() *cobra.Command {
	var cfg execConfig
	var run, name string
	var ttl, wait float64
	var asObject bool
	cmd := place.WithSocket(&cobra.Command{
		Use:   "exec --lease KEY [flags] -- CMD [ARG ...]",
		Short: "Run a program while holding a lease",
		Long: `Run a program while holding a lease. The lease is renewed for as long as the
program runs, and is free when it has ended.

The program gets standard input, output and error as they are, a process group
of its own, which is put into the foreground of the terminal, and

  LEASEHOLD_FENCE  the fencing token of the lease, to hand to what checks it
  LEASEHOLD_LEASE  its key

With several --lease it runs with all of the leases or not at all, and the
variables have a line for each. They are taken one after the other in the order
of their keys, so that no two commands wait for one another. INT, TERM and HUP are passed on. What the program leaves running
when it ends is ended before the lease is given back.

If the lease is lost, the program and all that it has started get SIGTERM, and
SIGKILL 5 s later. If the daemon cannot be reached to renew it, that happens in
time for all of it to be gone before another can have the lease. The same goes
for a kill -9 of exec: the program ends, and then the lease is free.

It acts as the actor whose token is in LEASEHOLD_TOKEN, in a session of its own,
also where LEASEHOLD_SESSION names one to share: else the lease would stay when
exec dies. It cannot re-enter a lease that the calling agent already holds; it
waits for it. Without a token it joins the run of this directory's project as a new worker of
the root layer.

Exit codes: that of the program; 128 and the number of the signal that ended it;
75 the lease was not obtained, stderr says who holds it; 76 it was lost; 126 the
program cannot be executed; 127 it was not found; 1 the daemon refused or is not
there; 2 wrong usage; 130 interrupted while waiting.`,
		Example: `  leasehold exec --lease deploy -- ./deploy.sh production

  # wait up to ten minutes in line, then give up
  leasehold exec --lease db/schema --wait 600 -- make migrate

  # all or nothing
  leasehold exec --lease port:8080 --lease port:8081 -- npm test

  # a lease of the actor's own layer
  leasehold exec --layer --lease output.json -- ./generate output.json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.argv = args
			cfg.ttl, cfg.wait = asSeconds(ttl), asSeconds(wait)
			if err := cfg.check(); err != nil {
				return err
			}
			hello, err := whoExecs(run, name)
			if err != nil {
				return err
			}
			if _, err := osexec.LookPath(cfg.argv[0]); err != nil {
				return cannotRun(cmd, err)
			}
			err = runExec(cmd, cfg, hello)
			var refusal *client.Refusal
			if !errors.As(err, &refusal) {
				return connection.AsJSON(asObject, cmd.OutOrStdout(), err)
			}
			if asObject {
				fmt.Fprintf(cmd.OutOrStdout(), "%s\n", refusal.Object)
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), terminal.Line(cmd.ErrOrStderr(), refusal.Message))
			}
			return exit.Code(codeOfRefusal(refusal))
		},
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows CMD is its own
	f.StringArrayVar(&cfg.keys, "lease", nil, "`KEY` of the lease; may be given several times")
	f.BoolVar(&cfg.layer, "layer", false, "a lease of the actor's own layer, not of the whole run")
	f.Float64Var(&ttl, "ttl", 60, "`SECS` for which each renewal keeps the lease")
	f.Float64Var(&wait, "wait", 0, "`SECS` to wait in line if it is held")
	view.JoinFlag(cmd, &run)
	f.StringVar(&name, "name", "exec", "the name to join it under")
	f.BoolVar(&asObject, "json", false, "print the object of a refusal")
	view.CompleteWith(cmd, "lease", view.CompleteLeases)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault // programs and files, which the shell knows
	}
	return cmd
}

func asSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func (cfg execConfig) check() error {
	const maxWait = 30 * 24 * time.Hour
	switch {
	case len(cfg.keys) == 0:
		return exit.Hint(exit.Usagef("say which lease to take, with --lease KEY"), "leasehold leases shows those that are held")
	case len(cfg.argv) == 0:
		return exit.Hint(exit.Usagef("say which program to run"), "leasehold exec --lease %s -- PROGRAM ARGUMENTS", cfg.keys[0])
	case cfg.ttl < time.Second || cfg.ttl > 24*time.Hour:
		return exit.Usagef("--ttl %v: must be from 1 to 86400", cfg.ttl.Seconds())
	case cfg.wait < 0 || cfg.wait > maxWait:
		return exit.Usagef("--wait %v: must be from 0 to %v", cfg.wait.Seconds(), maxWait.Seconds())
	}
	return nil
}

// whoExecs says as whom to connect: never in a session that others share.
func whoExecs(run, name string) (server.Hello, error) {
	if token := os.Getenv("LEASEHOLD_TOKEN"); token != "" {
		return server.Hello{Token: token, Directory: connection.Here()}, nil
	}
	if os.Getenv("LEASEHOLD_SESSION") != "" {
		return server.Hello{}, exit.Hint(errors.New("there is a LEASEHOLD_SESSION to share, but exec needs one of its own"),
			"set LEASEHOLD_TOKEN to act as the actor of that session, or unset LEASEHOLD_SESSION to join as a new worker")
	}
	run, err := place.Run(run, "")
	return server.Hello{Run: run, Name: name, Directory: connection.Here()}, err
}

// cannotRun says why the program does not start, with the code of shells.
func cannotRun(cmd *cobra.Command, err error) error {
	p := terminal.PaintFor(cmd.ErrOrStderr())
	fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", p.Red("leasehold:"), err)
	if errors.Is(err, osexec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exit.Code(exitNotFound)
	}
	return exit.Code(exitNotExecutable)
}

// codeOfRefusal tells a lease that others have from a request that is wrong.
func codeOfRefusal(r *client.Refusal) int {
	switch r.Code {
	case "LEASE_HELD", "WAIT_TIMEOUT", "DEADLOCK", "LIMIT", "DRAINING", "LEASE_LOST":
		return exitNotObtained
	case "INVALID_ARGUMENT":
		return exit.Misused
	default:
		return exit.Failed
	}
}
