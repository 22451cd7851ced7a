package view

import (
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
	for _, r := range list.Runs {
		state := "running"
		if r.EndedAt != nil {
			state = "ended " + terminal.Brief(time.Since(*r.EndedAt)) + " ago"
		}
		row := terminal.TextRow(r.Run, strconv.Itoa(r.Count), terminal.Brief(time.Since(r.CreatedAt)), state)
		row.Dim = r.EndedAt != nil
		t.Rows = append(t.Rows, row)
	}
	return t.Render(p) + list.leftOut(p), nil
}

func newRunsRemoveCommand() *cobra.Command {
	var ended, yes bool
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "rm NAME ... | --ended",
		Short: "Delete runs that have ended",
		Long: `Delete runs that have ended, with their actors, their stores and their tasks, before
their retention is over. A run that has not ended is refused: end it first. With
--ended all runs that have ended are deleted; without --yes it asks first. The run
directory of a dispatched run stays, with the output of its agents.`,
		Example: `  leasehold actor end --run release-42 root
  leasehold runs rm release-42
  leasehold runs rm --ended --yes`,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case ended && len(names) > 0:
				return exit.Usagef("--ended deletes all runs that have ended: leave out %s", terminal.Some(names))
			case !ended && len(names) == 0:
				return exit.Usagef("name the runs to delete, or give --ended for all that have ended")
			}
			c, err := connection.Operator(cmd, true)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			defer c.Close()
			if ended {
				if names, err = endedRuns(cmd.Context(), c); err == nil && !yes {
					err = askToDelete(cmd, reply.JSON, names)
				}
				if err != nil {
					return reply.Refused(cmd, err)
				}
			}
			return deleteRuns(cmd, &reply, c, names)
		},
	})
	cmd.Flags().BoolVar(&ended, "ended", false, "delete all runs that have ended")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --ended: do not ask")
	reply.Flag(cmd, "print JSON, one object per line")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		for _, r := range knownRuns(cmd, true) {
			if r.EndedAt != nil && !slices.Contains(args, r.Run) {
				names = append(names, r.Run)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// endedRuns asks for the names of the runs that have ended.
func endedRuns(ctx context.Context, c *client.Client) (names []string, err error) {
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
	return names, err
}

// askToDelete asks whether these runs may be deleted. It is an error if they may not.
func askToDelete(cmd *cobra.Command, json bool, names []string) error {
	switch {
	case len(names) == 0:
		return nil
	case json || !terminal.CanAsk(cmd.InOrStdin()):
		return exit.Hint(errors.New("no run was deleted: there is no terminal to ask at"), "leasehold runs rm --ended --yes deletes %s", terminal.Plural(len(names), "run"))
	}
	question := fmt.Sprintf("Delete %s (%s), with actors, stores and tasks?", terminal.Plural(len(names), "run"), terminal.Some(names))
	yes, err := terminal.Ask(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), question)
	if err == nil && !yes {
		err = errors.New("no run was deleted")
	}
	return err
}

// deleteRuns deletes those of the runs that have ended, and says of each what became of it.
func deleteRuns(cmd *cobra.Command, reply *connection.Reply, c *client.Client, names []string) error {
	if len(names) == 0 && !reply.JSON {
		return reply.Print(cmd, nil, "no run has ended")
	}
	var refused error
	for _, name := range names {
		answer, err := connection.Call(cmd.Context(), c, "operator_run_remove", map[string]any{"run": name})
		if _, ok := errors.AsType[*client.Refusal](err); ok {
			refused = errors.Join(refused, reply.Refused(cmd, err))
			continue
		}
		if err == nil {
			err = reply.Print(cmd, answer.Object, answer.Line())
		}
		switch {
		case err != nil && reply.JSON: // those that were refused are printed
			return err
		case err != nil:
			return errors.Join(refused, err)
		}
	}
	return refused
}
