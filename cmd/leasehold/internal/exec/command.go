// Package exec is leasehold exec, which runs a program while holding leases, or with a
// session alone.
package exec

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"slices"
	"syscall"
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
	exitNotExecutable = 126 // this and the next two as in shells
	exitNotFound      = 127
	exitSignalled     = 128 // plus the number of the signal
)

// execConfig has the arguments of exec.
type execConfig struct {
	wanted []wanted
	reason string
	ttl    time.Duration
	wait   time.Duration
	argv   []string
	place  []string // variables that lead the program to where exec's flags have led it
}

// A wanted is a lease to take.
type wanted struct {
	Scope string `json:"scope"`
	Key   string `json:"key,omitempty"`
	Path  string `json:"path,omitempty"`
	Mode  string `json:"mode,omitempty"`
}

// maxLeases is the greatest number of leases in one call.
const maxLeases = 16

func NewCommand() *cobra.Command {
	var cfg execConfig
	var run, name string
	var ttl, wait float64
	var layer, shared bool
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "exec [--lease KEY | --path PATH] [flags] -- CMD [ARG ...]",
		Short: "Run a program while holding a lease",
		Long: `Run a program while holding a lease. The lease is renewed for as long as the
program runs, and is free when it has ended. Without a lease the program gets a
session only.

The program gets the standard input, output and error of exec, its own process group
in the foreground of the terminal, and

  LEASEHOLD_FENCE    the fencing token of the lease, for whatever checks it
  LEASEHOLD_LEASE    its key
  LEASEHOLD_SESSION  the session of exec, a secret

leasehold call and leasehold lease check in the program act in the session of exec. So
what one call claims or leases stays with the program for the next call, and is given
back when the program has ended or exec has died. If LEASEHOLD_SESSION is set already,
as in an agent that leasehold launched, exec with a lease leaves it as it is, and exec
without a lease sets it to its own session.

--lease and --path may be given up to 16 times together. The program then runs with
all of the leases or not at all, and the variables have a line for each. The leases
are granted all at once, so two such commands never wait for each other.

exec passes on INT, TERM, HUP and QUIT. When the program ends, exec ends whatever it
left running, then releases the lease.

If the lease is lost, the program and all that it has started get SIGTERM, and SIGKILL
5 s later. If the daemon cannot be reached to renew it, exec does this early enough
that nothing of the program runs when another can get the lease. If exec itself is
killed with kill -9, the program is ended first; then the lease is released. If exec
alone is stopped (SIGSTOP), the program is ended before the lease expires.

exec acts as the actor whose token is in LEASEHOLD_TOKEN. It opens its own session
even if LEASEHOLD_SESSION names one, so that the lease ends if exec dies. It cannot
re-enter a lease that the calling agent already holds; it waits for it. Without a
token it joins the run of this directory's project as a new worker of the root layer.
A lease excludes only those in the same run: from cron, or from two clones of one
repository, name one run with --run.

Exit codes: that of the program; 128 and the number of the signal that ended it; 75
the lease was not obtained, stderr says who holds it; 76 it was lost; 126 the program
cannot be executed; 127 it was not found; 1 the daemon refused, or cannot be reached;
2 wrong usage; 130 interrupted while waiting.`,
		Example: `  leasehold exec --lease deploy -- ./deploy.sh production

  # wait up to ten minutes in line, then give up
  leasehold exec --lease db/schema --wait 600 -- make migrate

  # from cron, which starts elsewhere
  leasehold exec --run site --lease deploy --wait 600 -- make -C site deploy

  # all or nothing
  leasehold exec --lease port:8080 --lease port:8081 -- npm test

  # everything below a directory, shared with other readers
  leasehold exec --path 'src/**' --shared -- npm test

  # a lease of the actor's own layer
  leasehold exec --layer --lease output.json -- ./generate output.json

  # a script that claims tasks with leasehold call
  leasehold exec -- ./worker.sh compile 50 ./compile.sh`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg.argv = args
			cfg.all(layer, shared)
			if err := cfg.check(cmd, ttl, wait); err != nil {
				return err
			}
			hello, err := whoExecs(cmd, run, name)
			if err != nil {
				return err
			}
			if _, err := osexec.LookPath(cfg.argv[0]); err != nil {
				return cannotRun(cmd, err)
			}
			err = runExec(cmd, cfg, hello)
			if errors.Is(err, errCtrlC) {
				_ = syscall.Kill(0, syscall.SIGINT) // to the script, make or pipeline that exec is part of
				time.Sleep(100 * time.Millisecond)  // make is confused if it sees the end of exec first
				return exit.Code(exit.Interrupted)
			}
			return report(cmd, &reply, err)
		},
	})
	f := cmd.Flags()
	f.SetInterspersed(false) // flags after CMD belong to CMD
	f.Func("lease", "lease this `key` (repeatable)", func(key string) error { return cfg.add(wanted{Key: key}) })
	f.Func("path", "lease the file at this `path`, or with DIR/** everything below a directory (repeatable)", func(path string) error {
		return cfg.add(wanted{Path: path})
	})
	f.BoolVar(&layer, "layer", false, "leases of the actor's own layer, not of the whole run")
	f.BoolVar(&shared, "shared", false, "share the leases with others that only read")
	f.StringVar(&cfg.reason, "reason", "", "`text` that refused agents are shown")
	f.Float64Var(&ttl, "ttl", 60, "`seconds` that each renewal lasts")
	f.Float64Var(&wait, "wait", 0, "`seconds` to wait in line if the lease is held")
	view.JoinFlag(cmd, &run)
	f.StringVar(&name, "name", "exec", "the `name` to join the run under without a token")
	reply.Flag(cmd, "print a refusal as JSON")
	view.CompleteWith(cmd, "lease", view.CompleteLeases)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveDefault // the shell completes programs and files
	}
	return cmd
}

// report prints why the program did not get its leases, and returns its exit code.
func report(cmd *cobra.Command, reply *connection.Reply, err error) error {
	var refusal *client.Refusal
	if !errors.As(err, &refusal) {
		return reply.Refused(cmd, err)
	}
	code := codeOfRefusal(refusal)
	switch {
	case reply.JSON:
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n", refusal.Object)
	case code == exit.Misused:
		return exit.Usage(err)
	case code == exit.Failed:
		return err
	default: // the same text for everybody who is refused a lease
		fmt.Fprintln(cmd.ErrOrStderr(), terminal.Line(cmd.ErrOrStderr(), refusal.Message))
	}
	return exit.Code(code)
}

func asSeconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// add adds a lease to take, unless it is already in the list.
func (cfg *execConfig) add(w wanted) error {
	if w == (wanted{}) {
		return errors.New("must not be empty")
	}
	if !slices.Contains(cfg.wanted, w) {
		cfg.wanted = append(cfg.wanted, w)
	}
	return nil
}

// all sets the fields that all leases have in common.
func (cfg *execConfig) all(layer, shared bool) {
	for i := range cfg.wanted {
		w := &cfg.wanted[i]
		w.Scope = "run"
		if layer {
			w.Scope = "layer"
		}
		if shared {
			w.Mode = "shared"
		}
	}
}

// check checks what the command line asks for, and sets the durations, which are in
// seconds there.
func (cfg *execConfig) check(cmd *cobra.Command, ttl, wait float64) error {
	const maxTTL, maxWait = 24 * 60 * 60, 30 * 24 * 60 * 60
	for _, name := range []string{"layer", "shared", "reason", "ttl", "wait"} {
		if len(cfg.wanted) == 0 && cmd.Flags().Changed(name) {
			return exit.Hint(exit.Usagef("--%s: say which lease to take, with --lease KEY or --path PATH", name), "leasehold leases shows those that are held")
		}
	}
	switch {
	case len(cfg.wanted) > maxLeases:
		return exit.Usagef("--lease and --path: %d leases, of at most %d", len(cfg.wanted), maxLeases)
	case len(cfg.argv) == 0:
		return exit.Hint(exit.Usagef("say which program to run"), "leasehold exec --lease KEY -- PROGRAM ARGUMENTS")
	case !(ttl >= 1 && ttl <= maxTTL): // also if it is no number
		return exit.Usagef("--ttl %v: must be from 1 to %d", ttl, maxTTL)
	case !(wait >= 0 && wait <= maxWait):
		return exit.Usagef("--wait %v: must be from 0 to %d", wait, maxWait)
	}
	cfg.ttl, cfg.wait = asSeconds(ttl), asSeconds(wait)
	if len(cfg.wanted) == 0 {
		cfg.ttl = forever // a session lasts however long the daemon is away
	}
	return nil
}

// forever is longer than a daemon is away.
const forever = 365 * 24 * time.Hour

// whoExecs decides how to connect. It never uses a session that others share. In the
// program of another exec it joins as a new worker, as that one did.
func whoExecs(cmd *cobra.Command, run, name string) (server.Hello, error) {
	if token, err := place.ActorToken(cmd); token != "" || err != nil {
		return server.Hello{Token: token, Directory: connection.Here()}, cmp.Or(err, place.OtherRun(cmd))
	}
	if os.Getenv("LEASEHOLD_SESSION") != "" && os.Getenv(connection.ExecMark) == "" {
		return server.Hello{}, exit.Hint(errors.New("there is a LEASEHOLD_SESSION to share, but exec needs one of its own"),
			"set LEASEHOLD_TOKEN to act as the actor of that session, or unset LEASEHOLD_SESSION to join as a new worker")
	}
	run, err := place.JoinedRun(cmd, run, "")
	return server.Hello{Run: run, Name: name, Directory: connection.Here()}, err
}

// cannotRun prints why the program does not start, and returns the exit code
// that a shell would use.
func cannotRun(cmd *cobra.Command, err error) error {
	p := terminal.PaintFor(cmd.ErrOrStderr())
	fmt.Fprintf(cmd.ErrOrStderr(), "%s %v\n", p.Red("leasehold:"), err)
	if errors.Is(err, osexec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exit.Code(exitNotFound)
	}
	return exit.Code(exitNotExecutable)
}

// codeOfRefusal distinguishes a lease that could not be obtained from an
// invalid request.
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
