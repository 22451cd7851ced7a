// Package tree has the commands that work on trees of agents: init, dispatch,
// launcher and actor, and the watchdog that ends the processes of a dispatcher
// that died.
package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/manifest"
)

// A dispatchJob has the arguments of a dispatch.
type dispatchJob struct {
	run    string // overrides the manifest's name
	dir    string // overrides the default run directory
	resume string
	check  bool
	json   bool
	logs   bool
}

func NewDispatchCommand() *cobra.Command {
	var job dispatchJob
	cmd := place.WithServer(&cobra.Command{
		Use:   "dispatch MANIFEST | --resume RUN",
		Short: "Run a tree of agents, and leave nothing behind",
		Long: `Run a tree of agents. The root agent of the manifest is started first; leads start
sub-leads and workers below them with the tools spawn_sublead and spawn_worker.
dispatch shows the tree until all of it is done: redrawn in place on a terminal, one
line per event elsewhere. It ends with a summary and the path of the run directory,
which contains every agent's output. Without --dir, dispatch first deletes the run
directories of runs that ended more than 30 days ago; see leasehold runs rm --help.

Ctrl-C drains: nothing new is started, and agents have the manifest's grace to finish
before they get SIGTERM and then SIGKILL. A second Ctrl-C ends them now, a third
kills. No process of the run outlives it, not even if the dispatcher is killed; such a
run can be continued with --resume: actors that had succeeded are not run again.

An agent that the manifest, or its lead, places on another machine is started by leasehold
launcher there. With --server the daemon is elsewhere, too; that takes an operator's
token, and agents connect with their own. A dispatcher that cannot reach a server for
20 s ends its agents.

Exit codes: 0 ok; 1 an actor failed, or the root was cancelled; 2 bad manifest or usage;
130 interrupted.`,
		Example: `  leasehold init
  leasehold dispatch leasehold.toml
  leasehold dispatch --check leasehold.toml

  # what the agents say, beside what happens to them
  leasehold dispatch leasehold.toml --logs

  # for programs: one event per line, the summary last
  leasehold dispatch leasehold.toml --json | jq -r 'select(.event == "actor_exited").text'

  # with a daemon elsewhere
  LEASEHOLD_TOKEN_FILE=~/operator leasehold dispatch leasehold.toml --server https://leases.example.org:7711

  # go on with a run whose dispatcher died
  leasehold dispatch --resume release`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && job.resume == "":
				missing := exit.Usagef("say which manifest to dispatch")
				if _, err := os.Stat(defaultManifest); err == nil {
					return exit.Hint(missing, "there is %s here", defaultManifest)
				}
				return exit.Hint(missing, "leasehold init writes one")
			case len(args) > 0 && job.resume != "":
				return exit.Usagef("--resume takes the manifest from the run directory: leave out %s", args[0])
			case job.resume != "" && (job.run != "" || job.dir != "" || job.check):
				return exit.Usagef("--resume continues the run as it began: leave out --run, --dir and --check")
			case len(args) > 0 && args[0] == "-":
				return exit.Usagef(`"-" is no manifest: its paths are taken from the directory that it is in, so it must be a file`)
			}
			return job.do(cmd, args)
		},
	})
	f := cmd.Flags()
	f.StringVar(&job.run, "run", "", "the run's `name` (default the manifest's)")
	f.StringVar(&job.dir, "dir", "", "`directory` to make run directories in (default <state>/runs)")
	f.StringVar(&job.resume, "resume", "", "go on with this `run`: its name, or its run directory")
	f.BoolVar(&job.check, "check", false, "only check the manifest")
	f.BoolVar(&job.json, "json", false, "print events and the summary as JSON, one object per line")
	f.BoolVar(&job.logs, "logs", false, "print what agents write, each line after the agent's path")
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"toml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	view.CompleteWith(cmd, "resume", view.CompleteDispatched)
	return cmd
}

func (j *dispatchJob) do(cmd *cobra.Command, args []string) error {
	base, err := j.dir, error(nil)
	if base == "" {
		if base, err = place.Runs(); err != nil {
			return err
		}
	}
	m, dir, err := j.manifest(base, args)
	if err != nil {
		return err
	}
	if j.check {
		return j.checked(cmd.OutOrStdout(), args[0], m)
	}
	daemon, err := newRunDaemon(cmd)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	interrupts, stop, err := tidied(cmd, base, j.dir == "")
	if err != nil {
		return err
	}
	defer stop()
	resume := dir != nil
	if !resume {
		if dir, err = launcher.NewDirectory(base, m.Run.Name, time.Now()); err != nil {
			return err
		}
	}
	ctx := context.WithoutCancel(cmd.Context())
	show := j.display(cmd, m.Run.Name, daemon)
	opts := launcher.Options{
		Manifest: m, Directory: dir, Resume: resume, Leasehold: self,
		Connect: daemon.connect, Events: show.event, Interrupts: interrupts,
	}
	if err := daemon.tell(&opts); err != nil {
		return err
	}
	summary, err := launcher.Run(ctx, opts)
	closeErr := show.close()
	if err != nil {
		if summary.RunID != "" { // the run finished, but its summary could not be stored
			_ = j.report(cmd.OutOrStdout(), summary)
			err = exit.Hint(err, "the run is over: make room in that directory, or let it be written again; leasehold dispatch --resume %s then writes the summary", summary.Directory)
		}
		err = daemon.advise(whatNext(err, m.Run.Name, dir, resume))
		if summary.Interrupted {
			err = exit.WithCode(err, exit.Interrupted)
		}
		return err
	}
	// A reader that stops reading, such as head(1), does not make the run fail.
	err = errors.Join(closeErr, j.report(cmd.OutOrStdout(), summary))
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	switch {
	case err != nil && summary.Interrupted: // its terminal may be gone
		return exit.WithCode(err, exit.Interrupted)
	case err != nil:
		return err
	case summary.Interrupted:
		return exit.Code(exit.Interrupted)
	case summary.Failed():
		return exit.ErrReported
	default:
		return nil
	}
}

// manifest reads the manifest, and for --resume finds the run directory.
func (j *dispatchJob) manifest(base string, args []string) (*manifest.Manifest, *launcher.Directory, error) {
	if j.resume == "" {
		m, err := manifest.Load(args[0])
		if err != nil {
			return nil, nil, exit.Usage(exit.Hint(err, "leasehold init writes a manifest to start from; the book lists all fields"))
		}
		if j.run != "" {
			if err := dispatch.CheckRun(j.run); err != nil {
				return nil, nil, exit.Usagef("--run %q: %w", j.run, err)
			}
			m.Run.Name = j.run
		}
		return m, nil, nil
	}
	dir, err := launcher.FindDirectory(base, j.resume)
	if err != nil {
		return nil, nil, exit.Usage(exit.Hint(err, "the last line of a dispatch names its run directory; to start a new run, leave out --resume"))
	}
	if dir.Finished() {
		return nil, nil, fmt.Errorf("run %s is over: its summary is in %s", j.resume, dir.Path)
	}
	m, err := dir.LoadManifest()
	return m, dir, err
}

// checked reports that a manifest is valid.
func (j *dispatchJob) checked(out io.Writer, file string, m *manifest.Manifest) error {
	if j.json {
		return json.NewEncoder(out).Encode(map[string]any{
			"manifest": file, "run": m.Run.Name, "root": m.Root.Name, "agents": slices.Sorted(maps.Keys(m.Agents)),
		})
	}
	_, err := fmt.Fprintf(out, "%s is valid: run %s starts agent %s as its root, with the name %s\n", file, m.Run.Name, m.Root.Agent, m.Root.Name)
	return err
}

// whatNext adds a hint to the error of a run that could not begin.
func whatNext(err error, run string, dir *launcher.Directory, resumed bool) error {
	if errors.Is(err, launcher.ErrDaemonGone) {
		return exit.Hint(err, "leasehold dispatch --resume %s goes on with the run", dir.Path) // the name finds only what is in the usual place
	}
	var refusal *client.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	switch refusal.Code {
	case "INVALID_ARGUMENT", "LIMIT", "UNAVAILABLE": // there need not be a run
		return err
	}
	if resumed {
		return exit.Hint(err, "leasehold tree --run %s --all shows it", run)
	}
	return exit.Hint(err, "leasehold tree --run %s shows it; leasehold dispatch --resume %s goes on with it; --run gives this one another name", run, run)
}

// report prints the summary of a run.
func (j *dispatchJob) report(out io.Writer, s launcher.Summary) error {
	if j.json {
		return json.NewEncoder(out).Encode(map[string]any{"event": "summary", "summary": s})
	}
	_, err := io.WriteString(out, drawSummary(s, terminal.PaintFor(out)))
	return err
}

// tidied tidies up the directory of all runs, of which only the usual one is not the user's
// own. From then on an interrupt goes to the run, which ends in order: see interruptsOf. An
// earlier interrupt has ended the command's context.
func tidied(cmd *cobra.Command, base string, usual bool) (interrupts <-chan struct{}, stop func(), err error) {
	if err := launcher.TidyUp(cmd.Context(), base, usual); err != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: %v\n", err)
	}
	interrupts, stop = interruptsOf()
	if cmd.Context().Err() != nil {
		stop()
		return nil, nil, context.Cause(cmd.Context())
	}
	return interrupts, stop, nil
}

// interruptsOf turns the signals that ask the process to end into interrupts of
// a run, until stop is called. SIGTERM and SIGHUP count only as the first one: both the
// kernel and a shell report a terminal that is closed, and only a person who presses
// Ctrl-C again asks for more.
func interruptsOf() (interrupts <-chan struct{}, stop func()) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, terminal.Unignored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	terminal.SurviveBrokenPipes() // until the end of the process, as the signals

	told := make(chan struct{}, cap(signals))
	done := make(chan struct{})
	go func() { // ends with stop
		interrupted := false
		for {
			select {
			case s := <-signals:
				if interrupted && s != os.Interrupt {
					continue
				}
				interrupted = true
				told <- struct{}{}
			case <-done:
				return
			}
		}
	}()
	// The signals stay caught, so that one that arrives while the command ends
	// does not change its exit code.
	return told, func() { close(done) }
}
