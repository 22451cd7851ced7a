package view

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/queue"
)

// queueFlag adds --queue to a command.
func queueFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "queue", "", "`name` of the queue (default all)")
	CompleteWith(cmd, "queue", completeQueues)
}

func completeQueues(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	for _, q := range knownOf[queueList](cmd, "operator_queue_stats", map[string]any{"limit": queue.MaxStats}).Queues {
		names = append(names, q.Queue)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeTasks suggests tasks in a state as argument number at, counted from 0. If at is
// greater than 0, the first argument is the queue, and only its tasks are suggested.
func completeTasks(state string, at int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
		request := map[string]any{"state": state, "limit": 100}
		if at > 0 {
			request["queue"] = args[0]
		}
		if len(args) == at {
			for _, t := range knownOf[struct{ Tasks []shownTask }](cmd, "operator_queue_list", request).Tasks {
				if !slices.Contains(args, t.TaskID) {
					ids = append(ids, cobra.CompletionWithDesc(t.TaskID, t.Queue+" "+t.State))
				}
			}
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// knownOf calls known for the command line's run.
func knownOf[T any](cmd *cobra.Command, tool string, args map[string]any) (list T) {
	run, err := meantRun(cmd)
	if err != nil {
		return list
	}
	args["run"] = run
	return known[T](cmd, tool, args)
}
