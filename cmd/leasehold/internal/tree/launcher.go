package tree

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/view"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/work"
)

// NewLauncherCommand starts a run's agents on a further machine.
func NewLauncherCommand() *cobra.Command {
	s := launcher.Service{}
	var asObject bool
	cmd := place.WithServer(&cobra.Command{
		Use:   "launcher --run RUN",
		Short: "Start a run's agents on this machine",
		Long: `Start those agents of a run on this machine that are placed here. The run is dispatched
by leasehold dispatch, mostly on another machine. Its manifest, or the lead that spawns
an agent, names this machine (machine = "NAME") or one of its labels (label = "gpu").

The launcher waits for the run to begin, and ends with it. The agents work in --directory,
which stands for the root's directory: an agent that is to work in a directory below
that one works in the same place below this. Their programs must be installed here. What
they write is in a run directory here, and leasehold logs shows it here. Without --dir,
it first deletes run directories of runs that ended more than 30 days ago.

Whoever may dispatch a run chooses what runs on this machine, as the user that starts
this command. It takes an operator's token to connect with --server.

Ctrl-C ends it: nothing more is started here, agents get SIGTERM, and SIGKILL after the
run's grace, and are reported as cancelled. A second Ctrl-C kills them. If the launcher is
killed, or cannot reach a server for 20 s, its agents are ended, too. The daemon gives up
a machine that is away for 30 s: it releases what the agents held, reports them as lost,
and writes to their leads.

Exit codes: 0 the run is over; 1 it could not be served to its end; 130 interrupted.`,
		Example: `  leasehold launcher --run release --name build1

  # on another machine, for agents that need a GPU
  LEASEHOLD_TOKEN_FILE=~/operator leasehold launcher --run release --label gpu --label linux --server https://leases.example.org:7711`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkService(&s); err != nil {
				return err
			}
			return serve(cmd, s, asObject)
		},
	})
	f := cmd.Flags()
	f.StringVar(&s.Run, "run", "", "the `name` of the run")
	f.StringVar(&s.Machine, "name", "", "the `name` of this machine in the run (default: the host's, up to its first dot)")
	f.StringArrayVar(&s.Labels, "label", nil, "a `word` by which agents are placed here, too (repeatable)")
	f.StringVar(&s.Work, "directory", "", "the `directory` that stands for the root's (default: the current one)")
	f.StringVar(&s.Base, "dir", "", "`directory` to make run directories in (default <state>/runs)")
	f.BoolVar(&asObject, "json", false, "print events as JSON, one object per line")
	view.CompleteWith(cmd, "run", view.CompleteRuns)
	return cmd
}

// checkService fills in the default name and directory, and refuses invalid options.
func checkService(s *launcher.Service) error {
	if s.Run == "" {
		return exit.Hint(exit.Usagef("say which run's agents to start: --run RUN"), "leasehold runs lists them")
	}
	if err := dispatch.CheckRun(s.Run); err != nil {
		return exit.Usagef("--run %q: %w", s.Run, err)
	}
	if s.Machine == "" {
		host, err := os.Hostname()
		if err != nil {
			return exit.Hint(err, "name this machine with --name")
		}
		s.Machine, _, _ = strings.Cut(host, ".")
	}
	if err := work.CheckMachine("name", s.Machine); err != nil {
		return exit.Usagef("--name %q: %w", s.Machine, err)
	}
	for _, label := range s.Labels {
		if err := work.CheckMachine("label", label); err != nil {
			return exit.Usagef("--label %q: %w", label, err)
		}
	}
	var err error
	if s.Work, err = filepath.Abs(cmp.Or(s.Work, ".")); err != nil {
		return err
	}
	if info, err := os.Stat(s.Work); err != nil || !info.IsDir() {
		return exit.Usagef("--directory %s: must be a directory, in which the run's agents work", s.Work)
	}
	return nil
}

func serve(cmd *cobra.Command, s launcher.Service, asObject bool) error {
	var err error
	usual := s.Base == ""
	if usual {
		if s.Base, err = place.Runs(); err != nil {
			return err
		}
	}
	if s.Leasehold, err = os.Executable(); err != nil {
		return err
	}
	daemon, err := newRunDaemon(cmd)
	if err != nil {
		return err
	}
	if err := daemon.tell(&s.Options); err != nil {
		return err
	}
	s.Connect = daemon.connect
	interrupts, stop, err := tidied(cmd, s.Base, usual)
	if err != nil {
		return err
	}
	defer stop()
	s.Interrupts = interrupts
	s.Waiting = func(reason string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: waiting: %s\n", reason)
	}
	lines := &lineView{out: cmd.OutOrStdout(), began: time.Now()}
	s.Events = lines.event
	if asObject {
		enc := json.NewEncoder(cmd.OutOrStdout())
		s.Events = func(e launcher.Event) { _ = enc.Encode(e) } // a reader that has gone does not end the run
	}
	interrupted, err := launcher.Serve(context.WithoutCancel(cmd.Context()), s)
	err = daemon.advise(err)
	switch {
	case interrupted && err == nil:
		return exit.Code(exit.Interrupted)
	case interrupted:
		return exit.WithCode(err, exit.Interrupted)
	}
	return err
}
