package view

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// NewRunsCommand shows runs, and removes those that have ended.
func NewRunsCommand() *cobra.Command {
	l := &look{title: "runs", tool: "operator_tree", empty: `{"runs":[]}`, args: map[string]any{}, draw: drawRunList}
	cmd := l.flags(&cobra.Command{
		Use:   "runs",
		Short: "Show the runs, and remove those that have ended",
		Long: `Show all runs, including those that have ended: how old each is and how many actors it
has.`,
		Example: `  leasehold runs
  leasehold runs rm release-42`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	})
	cmd.AddCommand(newRunsRemoveCommand())
	return cmd
}

func drawRunList(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[struct{ Runs []ShownRun }](object)
	if err != nil {
		return "", err
	}
	if len(list.Runs) == 0 {
		return "no runs\n", nil
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
		row := terminal.TextRow(r.Run, strconv.Itoa(len(r.Actors)), terminal.Brief(time.Since(r.CreatedAt)), state)
		row.Dim = r.EndedAt != nil
		t.Rows = append(t.Rows, row)
	}
	return t.Render(p), nil
}

func newRunsRemoveCommand() *cobra.Command {
	var reply connection.Reply
	cmd := place.WithServer(&cobra.Command{
		Use:   "rm NAME",
		Short: "Forget a run that has ended",
		Long: `Forget a run that has ended, with its actors, its stores and its tasks, before its
retention is over. A run that has not ended is refused: end it first.`,
		Example: `  leasehold actor end --run release-42 root
  leasehold runs rm release-42`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return reply.Call(cmd, true, "operator_run_remove", map[string]any{"run": args[0]}, connection.Line)
		},
	})
	reply.Flag(cmd, "print JSON, one object in a line")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		for _, r := range knownRuns(cmd, true) {
			if r.EndedAt != nil && len(args) == 0 {
				names = append(names, r.Run)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}
