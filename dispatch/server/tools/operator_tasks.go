package tools

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
)

// inRun is inOwnRun for the run that the arguments name.
func inRun[A interface{ run() string }, R any](o *operator, fn func(context.Context, dispatch.Tasks, A) (R, error)) func(context.Context, *dispatch.Session, A) (R, error) {
	return func(ctx context.Context, _ *dispatch.Session, a A) (none R, err error) {
		tasks, err := o.state.RunTasks(ctx, a.run())
		if err != nil {
			return none, err
		}
		result, err := fn(ctx, tasks, a)
		if errors.Is(err, queue.ErrNoQueue) { // people have no queue_stats
			err = fmt.Errorf("%w; leasehold queue --run %s shows those that have tasks", err, a.run())
		}
		return result, err
	}
}

type showQueuesArgs struct {
	runArg
	statsArgs
}

func showQueues(ctx context.Context, tasks dispatch.Tasks, a showQueuesArgs) (queueList, error) {
	list, more, err := tasks.Stats(ctx, a.Queue, a.After, a.Limit)
	return countsOf(list, more), err
}

type showTasksArgs struct {
	runArg
	Queue string `json:"queue,omitempty" doc:"default: all queues of the run that have tasks" max:"64"`
	State string `json:"state,omitempty" doc:"live: those in progress, then the ready, then the delayed" enum:"live|delayed|ready|in_progress|completed|failed|dead|cancelled" default:"\"live\""`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"100"`
}

// liveTasks means all states that are not final.
const liveTasks = "live"

func statesOf(word string) []queue.State {
	if word == liveTasks {
		return []queue.State{queue.InProgress, queue.Ready, queue.Delayed}
	}
	for s := queue.Delayed; s <= queue.Cancelled; s++ {
		if s.String() == word {
			return []queue.State{s}
		}
	}
	return nil
}

func countIn(s queue.Stats, state queue.State) uint64 {
	switch state {
	case queue.Delayed:
		return s.Delayed
	case queue.Ready:
		return s.ReadyTotal()
	case queue.InProgress:
		return s.InProgress
	case queue.Completed:
		return s.Completed
	case queue.Failed:
		return s.Failed
	case queue.Dead:
		return s.Dead
	default:
		return s.Cancelled
	}
}

// showTasks lists tasks by queue, and by state within each queue.
func showTasks(ctx context.Context, tasks dispatch.Tasks, a showTasksArgs) (taskList, error) {
	var list []queue.Task
	for after, more := "", true; more && len(list) < a.Limit; {
		var queues []queue.Stats
		var err error
		if queues, more, err = tasks.Stats(ctx, a.Queue, after, queue.MaxStats); err != nil {
			return taskList{}, err
		}
		for _, q := range queues {
			after = q.Queue
			for _, state := range statesOf(a.State) {
				// Searching for a state without tasks could pass many other
				// tasks.
				if left := a.Limit - len(list); left > 0 && countIn(q, state) > 0 {
					some, _, err := tasks.List(ctx, q.Queue, state, "", left)
					if err != nil {
						return taskList{}, err
					}
					list = append(list, some...)
				}
			}
		}
	}
	return tasksOf(list, ""), nil
}

type showTaskArgs struct {
	runArg
	taskArg
}

type redriveRunArgs struct {
	runArg
	redriveArgs
}

func redriveRun(ctx context.Context, tasks dispatch.Tasks, a redriveRunArgs) (redriven, error) {
	return redrive(ctx, tasks, a.redriveArgs)
}

type pauseArgs struct {
	runArg
	queueArg
	Reason string `json:"reason" doc:"shown to whoever looks (≤ 256 bytes)" min:"1" max:"256"`
}

type resumeArgs struct {
	runArg
	queueArg
}

type pausedQueue struct {
	Queue   string `json:"queue" told:"line"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed" jsonschema:"false: it was so before"`
}

func (p pausedQueue) Text() string {
	switch {
	case p.Paused:
		return "queue " + p.Queue + " is paused"
	case p.Changed:
		return "queue " + p.Queue + " is resumed"
	}
	return "queue " + p.Queue + " is not paused"
}

func pauseQueue(ctx context.Context, tasks dispatch.Tasks, a pauseArgs) (pausedQueue, error) {
	changed, err := tasks.Pause(ctx, a.Queue, a.Reason)
	return pausedQueue{a.Queue, true, changed}, err
}

func resumeQueue(ctx context.Context, tasks dispatch.Tasks, a resumeArgs) (pausedQueue, error) {
	changed, err := tasks.Resume(ctx, a.Queue)
	return pausedQueue{a.Queue, false, changed}, err
}
