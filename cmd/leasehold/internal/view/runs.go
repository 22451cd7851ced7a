package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/launcher"
	"github.com/leasehold/leasehold/dispatch/server"
)

// NewRunsCommand shows runs, and removes those that have ended.
func NewRunsCommand() *cobra.Command {
	var all bool
	l := &look{}
	cmd := l.flags(&cobra.Command{
		Use:   "runs",
		Short: "Show the runs, and delete those that have ended",
		Long: `Show the runs: how old each is and how many actors it has. Runs that have ended are
only counted without --all; --json always lists them all. leasehold tree shows their
actors.`,
		Example: `  leasehold runs
  leasehold runs --all
  leasehold runs rm release-42`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked := TreeLook("", all || l.JSON)
			asked.args["actors"] = false // of thousands of runs they take seconds to read
			asked.Reply, asked.watch, asked.draw = l.Reply, l.watch, drawRunList
			return asked.run(cmd)
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "include those that have ended")
	cmd.AddCommand(newRunsRemoveCommand())
	return cmd
}

func drawRunList(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[shownRuns](object)
	if err != nil {
		return "", err
	}
	switch {
	case len(list.Runs) == 0 && list.Ended == 0:
		return "no runs\n", nil
	case len(list.Runs) == 0:
		return list.leftOut(p), nil
	}
	t := terminal.Table{Columns: []terminal.Column{
		{Head: "RUN", Want: 24, Bare: 10},
		{Head: "ACTORS", Rank: terminal.Minor},
		{Head: "AGE", Rank: terminal.Minor + 1},
		{Head: "STATE"},
	}}
	advice := ""
	for _, r := range ordered(list.Runs) {
		state := "running"
		switch {
		case r.Interrupted:
			state = "interrupted"
			advice = p.Dim(fmt.Sprintf("leasehold dispatch --resume %[1]s goes on with the run that was interrupted; leasehold actor end --run %[1]s root ends it", r.Run)) + "\n"
		case r.EndedAt != nil:
			state = "ended " + terminal.Brief(time.Since(*r.EndedAt)) + " ago"
		}
		row := terminal.TextRow(r.Run, strconv.Itoa(r.Count), terminal.Brief(time.Since(r.CreatedAt)), state)
		row.Dim = r.EndedAt != nil
		t.Rows = append(t.Rows, row)
	}
	return t.Render(p) + advice + list.leftOut(p), nil
}

func newRunsRemoveCommand() *cobra.Command {
	var (
		j     deletion
		ended bool
		yes   bool
	)
	cmd := place.WithServer(&cobra.Command{
		Use:   "rm NAME ... | --ended",
		Short: "Delete runs that have ended",
		Long: `Delete runs that have ended, with their actors, their stores and their tasks, before
their retention is over. A run that has not ended is refused: end it first. With
--ended all runs that have ended are deleted; without --yes it asks first.

The run directory of a dispatched run, with the output of its agents, is kept for 30 days
after its end. With --files it is deleted now, if the run was dispatched with this daemon.
A run directory with worktrees is never deleted: they may have work that is nowhere else.
Nor is one of a run that was not dispatched to its end. What stays is named, and the
exit code is then 1.`,
		Example: `  leasehold actor end --run release-42 root
  leasehold runs rm release-42
  leasehold runs rm --ended --yes

  # with what their agents wrote
  leasehold runs rm --ended --files`,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case ended && len(names) > 0:
				return exit.Usagef("--ended deletes all runs that have ended: leave out %s", terminal.Some(names))
			case !ended && len(names) == 0:
				return exit.Usagef("name the runs to delete, or give --ended for all that have ended")
			}
			if j.files {
				var err error
				if j.base, err = place.Runs(); err != nil {
					return err
				}
			}
			dialer, err := connection.For(cmd)
			if err != nil {
				return j.reply.Refused(cmd, err)
			}
			c, err := dialer.Open(cmd.Context(), server.Hello{Operator: true}, true)
			if err != nil {
				return j.reply.Refused(cmd, err)
			}
			defer c.Close()
			j.daemon = dialer.Address()
			if ended {
				if names, err = j.ended(cmd.Context(), c); err == nil && !yes {
					err = j.ask(cmd, names)
				}
				if err != nil {
					return j.reply.Refused(cmd, err)
				}
			}
			return j.do(cmd, c, names)
		},
	})
	cmd.Flags().BoolVar(&ended, "ended", false, "delete all runs that have ended")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --ended: do not ask")
	cmd.Flags().BoolVar(&j.files, "files", false, "delete their run directories on this machine, too")
	j.reply.Flag(cmd, "print JSON, one object per line")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		base, err := place.Runs()
		if j.files && err == nil {
			names = launcher.RunNames(base)
		}
		for _, r := range knownRuns(cmd, true) {
			names = slices.DeleteFunc(names, func(name string) bool { return name == r.Run })
			if r.EndedAt != nil {
				names = append(names, r.Run)
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// A deletion is of runs that have ended.
type deletion struct {
	reply  connection.Reply
	files  bool
	base   string // where their run directories are
	daemon string // as these name it
}

// ended asks for the names of the runs that have ended. Those that are known only by
// their run directories were forgotten.
func (j *deletion) ended(ctx context.Context, c *client.Client) (names []string, err error) {
	answer, err := connection.Call(ctx, c, "operator_tree", map[string]any{"actors": false})
	if err != nil {
		return nil, err
	}
	if list := missing(answer.Object); list != "" {
		return nil, exit.Hint(fmt.Errorf("no server leads %s at present, so nobody knows which of its runs have ended", list), "nothing was deleted; try again")
	}
	list, err := connection.Decode[shownRuns](answer.Object)
	for _, r := range list.Runs {
		if r.EndedAt != nil {
			names = append(names, r.Run)
		}
	}
	if !j.files {
		return names, err
	}
	for _, run := range launcher.RunsThrough(j.base, j.daemon) {
		if !slices.ContainsFunc(list.Runs, func(r ShownRun) bool { return r.Run == run }) {
			names = append(names, run)
		}
	}
	return names, err
}

// ask asks whether these runs may be deleted. It is an error if they may not.
func (j *deletion) ask(cmd *cobra.Command, names []string) error {
	what, flag := "actors, stores and tasks", ""
	if j.files {
		what, flag = "actors, stores, tasks and run directories", " --files"
	}
	switch {
	case len(names) == 0:
		return nil
	case j.reply.JSON || !terminal.CanAsk(cmd.InOrStdin()):
		return exit.Hint(errors.New("no run was deleted: there is no terminal to ask at"), "leasehold runs rm --ended%s --yes deletes %s", flag, terminal.Plural(len(names), "run"))
	}
	question := fmt.Sprintf("Delete %s (%s), with %s?", terminal.Plural(len(names), "run"), terminal.Some(names), what)
	yes, err := terminal.Ask(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), question)
	if err == nil && !yes {
		err = errors.New("no run was deleted")
	}
	return err
}

// do deletes those of the runs that have ended, and says of each what became of it.
func (j *deletion) do(cmd *cobra.Command, c *client.Client, names []string) error {
	if len(names) == 0 && !j.reply.JSON {
		return j.reply.Print(cmd, nil, "no run has ended")
	}
	var refused, left error
	for _, name := range names {
		d := deletedRun{Run: name}
		answer, err := connection.Call(cmd.Context(), c, "operator_run_remove", map[string]any{"run": name})
		if err == nil {
			d, err = connection.Decode[deletedRun](answer.Object)
		}
		if j.files && (err == nil || connection.IsCode(err, "NOT_FOUND")) {
			deleted, kept := launcher.DeleteDirectories(j.base, name, j.daemon)
			if d.Directories, d.Kept = &deleted, kept; deleted+len(kept) > 0 {
				err = nil // a run that was forgotten, too, may have some
			}
		}
		if _, ok := errors.AsType[*client.Refusal](err); ok {
			refused = errors.Join(refused, j.reply.Refused(cmd, err))
			continue
		}
		if err == nil {
			err = j.print(cmd, d)
		}
		if len(d.Kept) > 0 {
			left = exit.ErrReported
		}
		switch {
		case err != nil && j.reply.JSON: // those that were refused are printed
			return err
		case err != nil:
			return errors.Join(refused, err)
		}
	}
	return cmp.Or(refused, left)
}

// A deletedRun says what was deleted of a run.
type deletedRun struct {
	Run         string                   `json:"run"`
	Removed     bool                     `json:"removed"`
	Directories *int                     `json:"directories_removed,omitempty"`
	Kept        []launcher.KeptDirectory `json:"directories_kept,omitempty"`
}

func (j *deletion) print(cmd *cobra.Command, d deletedRun) error {
	object, err := json.Marshal(d)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("run %s is deleted", d.Run)
	if !d.Removed {
		text = fmt.Sprintf("run %s was deleted before", d.Run)
	}
	if d.Directories != nil && *d.Directories > 0 {
		text += fmt.Sprintf("; run directories deleted: %d", *d.Directories)
	}
	for _, k := range d.Kept {
		text += fmt.Sprintf("\nleft: %s: %s", k.Path, k.Why)
	}
	return j.reply.Print(cmd, object, text)
}
