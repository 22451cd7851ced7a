package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/dispatch"
)

// runFlag gives a command --run, with the runs there are for completion.
func runFlag(cmd *cobra.Command, run *string) {
	cmd.Flags().StringVar(run, "run", "default", "name of the run")
	completeWith(cmd, "run", completeRuns)
}

// complete gives a flag a fixed choice of words.
func complete(cmd *cobra.Command, flag string, words ...string) {
	completeWith(cmd, flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

func completeWith(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, fn); err != nil {
		panic(err) // the flag is missing
	}
}

// completeTimeout is how long a shell waits for what the daemon knows.
const completeTimeout = time.Second

// knownRuns asks the daemon. Without one there is nothing to suggest.
func knownRuns(cmd *cobra.Command) []shownRun {
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeTimeout)
	defer cancel()
	cmd.SetContext(ctx)
	answer, err := asOperator(cmd, "operator_tree", map[string]any{})
	if err != nil {
		return nil
	}
	list, _ := decode[struct{ Runs []shownRun }](answer.Object)
	return list.Runs
}

func completeRuns(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, r := range knownRuns(cmd) {
		if r.EndedAt == nil {
			names = append(names, r.Run)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeLeads suggests the leads of the run that is named already.
func completeLeads(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return livingPaths(cmd, func(a shownActor) bool { return dispatch.Role(a.Role).Leads() }), cobra.ShellCompDirectiveNoFileComp
}

// livingPaths are the paths of a run's living actors that fit.
func livingPaths(cmd *cobra.Command, fits func(shownActor) bool) (paths []string) {
	run, err := cmd.Flags().GetString("run")
	if err != nil {
		return nil
	}
	for _, r := range knownRuns(cmd) {
		if r.Run != run {
			continue
		}
		for _, a := range r.Actors {
			if a.EndedAt == nil && fits(a) {
				paths = append(paths, strings.ReplaceAll(a.Path, dispatch.Separator, "/"))
			}
		}
	}
	return paths
}
