package view

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/queue"
)

func NewQueueCommand() *cobra.Command {
	cmd := newQueueStatsCommand("queue")
	cmd.Short = "Show the queues of a run and their tasks"
	cmd.Long = `Show the queues of a run: how many tasks each has, by state. Without a command
below it is the same as queue stats.

A task goes delayed → ready → in_progress → completed, failed, dead or cancelled.`
	cmd.Example = `  leasehold queue --watch
  leasehold queue list --run build --queue compile --state in_progress
  leasehold queue dead --run build
  leasehold queue redrive --run build compile`
	cmd.AddCommand(newQueueStatsCommand("stats"), newQueueListCommand(), newQueueShowCommand(),
		newQueueDeadCommand(), newQueueRedriveCommand(), newQueueCancelCommand(),
		newQueuePauseCommand(), newQueueResumeCommand())
	return cmd
}

func newQueueStatsCommand(use string) *cobra.Command {
	var run, name string
	l := &look{tool: "operator_queue_stats", empty: `{"queues":[]}`, draw: drawQueues}
	cmd := l.flags(&cobra.Command{
		Use:   use,
		Short: "Show how many tasks each queue has, by state",
		Example: `  leasehold queue stats --run build --watch
  leasehold queue stats --json | jq '.queues[] | select(.dead > 0).queue'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.title = "queues of run " + run
			l.args = map[string]any{"run": run, "queue": name, "limit": queue.MaxStats}
			return l.run(cmd)
		},
	})
	RunFlag(cmd, &run)
	queueFlag(cmd, &name)
	return cmd
}

const liveTasks = "live"

func newQueueListCommand() *cobra.Command {
	var run, name string
	var limit int
	state, states := liveTasks, []string{liveTasks}
	for s := queue.Delayed; s <= queue.Cancelled; s++ {
		states = append(states, s.String())
	}
	l := &look{tool: "operator_queue_list", empty: `{"tasks":[]}`}
	cmd := l.flags(&cobra.Command{
		Use:   "list",
		Short: "Show tasks",
		Long: `Show the tasks that are not finished, queue by queue: those in progress, then the
ready ones in the order in which they will be claimed, then the delayed. --state
shows those of one state.`,
		Example: `  leasehold queue list --watch
  leasehold queue list --run build --queue compile --state failed
  leasehold queue list --state ready --limit 1000 --json | jq -r '.tasks[].task_id'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			l.title = "tasks of run " + run
			l.args = map[string]any{"run": run, "queue": name, "state": state, "limit": limit}
			l.draw = drawTasks(limit, state)
			return l.run(cmd)
		},
	})
	RunFlag(cmd, &run)
	queueFlag(cmd, &name)
	OneOf(cmd, &state, "state", "live, delayed, ready, in_progress, completed, failed, dead or cancelled", states...)
	limitFlag(cmd, &limit)
	return cmd
}

func newQueueDeadCommand() *cobra.Command {
	var run, name string
	var limit int
	l := &look{tool: "operator_queue_list", empty: `{"tasks":[]}`}
	cmd := l.flags(&cobra.Command{
		Use:   "dead",
		Short: "Show dead tasks, with the cause of each attempt",
		Long: `Show the tasks that used up their attempts, with the cause of each. They are kept
for 7 days. In that time, queue redrive can return them to their queue.`,
		Example: `  leasehold queue dead
  leasehold queue dead --run build --queue compile --json | jq -r '.tasks[].attempts[].cause'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			l.title = "dead tasks of run " + run
			l.args = map[string]any{"run": run, "queue": name, "state": queue.Dead.String(), "limit": limit}
			l.draw = drawDead(limit)
			return l.run(cmd)
		},
	})
	RunFlag(cmd, &run)
	queueFlag(cmd, &name)
	limitFlag(cmd, &limit)
	return cmd
}

func newQueueShowCommand() *cobra.Command {
	var run string
	var reply connection.Reply
	return InRun(&cobra.Command{
		Use:   "show TASK_ID",
		Short: "Show everything about a task",
		Long: `Show everything about a task: its state, its payload, its result, and how each attempt
ended. The last part of an id is enough, as narrow tables show it.`,
		Example: `  leasehold queue show --run build 7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f
  leasehold queue show 7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f --json | jq .payload`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := taskNamed(cmd, run, args[0])
			if err != nil {
				return reply.Refused(cmd, err)
			}
			return reply.Call(cmd, false, "operator_task", map[string]any{"run": run, "task_id": id}, func(answer client.Answer) (string, error) {
				text, err := drawTask(answer.Object, terminal.PaintFor(cmd.OutOrStdout()))
				return strings.TrimSuffix(text, "\n"), err
			})
		},
	}, &run, &reply, "print JSON, one object per line", completeTasks(liveTasks, 0))
}

func newQueueCancelCommand() *cobra.Command {
	var run string
	var reply connection.Reply
	return InRun(&cobra.Command{
		Use:   "cancel TASK_ID",
		Short: "Cancel a task",
		Long: `Cancel a task. A finished task stays as it is, and the answer gives its state. The
worker that has claimed the task learns of it at its next heartbeat, or when its
submit is refused. The last part of an id is enough, as narrow tables show it.`,
		Example: `  leasehold queue cancel --run build 7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := taskNamed(cmd, run, args[0])
			if err != nil {
				return reply.Refused(cmd, err)
			}
			return reply.Call(cmd, true, "operator_task_cancel", map[string]any{"run": run, "task_id": id}, connection.Line)
		},
	}, &run, &reply, "print {task_id, state}", completeTasks(liveTasks, 0))
}

func newQueuePauseCommand() *cobra.Command {
	var run, reason string
	var reply connection.Reply
	cmd := InRun(&cobra.Command{
		Use:   "pause QUEUE --reason TEXT",
		Short: "Pause a queue: workers get no tasks of it until it is resumed",
		Long: `Pause a queue: workers get no tasks of it until it is resumed. Tasks in progress go on,
and tasks can still be enqueued. Workers that ask for a task wait as if the queue
were empty. The reason is shown to whoever looks at the queue. A pause outlasts a
restart of the daemon.`,
		Example: `  leasehold queue pause --run build compile --reason 'the compiler is broken'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if reason == "" {
				return exit.Usagef("--reason is missing: it is shown to whoever looks at the queue")
			}
			return reply.Call(cmd, true, "operator_queue_pause", map[string]any{"run": run, "queue": args[0], "reason": reason}, connection.Line)
		},
	}, &run, &reply, "print {queue, paused, changed}", First(completeQueues))
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for whoever looks at the queue")
	return cmd
}

func newQueueResumeCommand() *cobra.Command {
	var run string
	var reply connection.Reply
	return InRun(&cobra.Command{
		Use:     "resume QUEUE",
		Short:   "End the pause of a queue",
		Long:    `End the pause of a queue. Workers that wait get its tasks, first come, first served.`,
		Example: `  leasehold queue resume --run build compile`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return reply.Call(cmd, true, "operator_queue_resume", map[string]any{"run": run, "queue": args[0]}, connection.Line)
		},
	}, &run, &reply, "print {queue, paused, changed}", First(completeQueues))
}

func newQueueRedriveCommand() *cobra.Command {
	var run string
	var reply connection.Reply
	complete := func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return completeQueues(cmd, args, word)
		}
		return completeTasks(queue.Dead.String(), len(args))(cmd, args, word)
	}
	return InRun(&cobra.Command{
		Use:   "redrive QUEUE [TASK_ID ...]",
		Short: "Return dead tasks to their queue with a fresh set of attempts",
		Long: fmt.Sprintf(`Return dead tasks to their queue with a fresh set of attempts: those named, or else the
first %d.`, queue.MaxRedrive),
		Example: `  leasehold queue redrive --run build compile
  leasehold queue redrive compile 7f2c8a52-1de0-4d5a-9a3e-1f2b3c4d5e6f`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"run": run, "queue": args[0]}
			var ids []string
			for _, given := range args[1:] {
				id, err := taskNamed(cmd, run, given)
				if err != nil {
					return reply.Refused(cmd, err)
				}
				ids = append(ids, id)
			}
			if len(ids) > 0 {
				request["task_ids"] = ids
			}
			answer, err := connection.AsOperator(cmd, true, "operator_queue_redrive", request)
			if err != nil {
				return reply.Refused(cmd, err)
			}
			if reply.JSON {
				return reply.Print(cmd, answer.Object, "")
			}
			return tellRedriven(cmd.OutOrStdout(), answer.Object, args[0], ids)
		},
	}, &run, &reply, "print {task_ids}", complete)
}

// tellRedriven prints how many tasks were redriven, and which of the requested ones were
// not.
func tellRedriven(out io.Writer, object json.RawMessage, name string, asked []string) error {
	done, err := connection.Decode[struct {
		TaskIDs []string `json:"task_ids"`
	}](object)
	if err != nil {
		return err
	}
	text := terminal.Plural(len(done.TaskIDs), "task") + " redriven"
	if len(asked) == 0 && len(done.TaskIDs) == queue.MaxRedrive {
		text += "; there may be more: do it again"
	}
	if _, err := fmt.Fprintln(out, text); err != nil {
		return err
	}
	left := slices.DeleteFunc(slices.Clone(asked), func(id string) bool { return slices.Contains(done.TaskIDs, id) })
	if len(left) == 0 {
		return nil
	}
	return exit.Hint(fmt.Errorf("not dead in queue %s: %s", name, strings.Join(left, ", ")), "leasehold queue dead shows those that are")
}
