package tools

import (
	"context"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/queue"
)

type showQueuesArgs struct {
	runArg
	statsArgs
}

func (o *operator) showQueues(ctx context.Context, _ *dispatch.Session, a showQueuesArgs) (queueList, error) {
	tasks, err := o.state.RunTasks(ctx, a.Run)
	if err != nil {
		return queueList{}, err
	}
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
func (o *operator) showTasks(ctx context.Context, _ *dispatch.Session, a showTasksArgs) (taskList, error) {
	tasks, err := o.state.RunTasks(ctx, a.Run)
	if err != nil {
		return taskList{}, err
	}
	var list []queue.Task
	for after, more := "", true; more && len(list) < a.Limit; {
		var queues []queue.Stats
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

func (o *operator) task(ctx context.Context, a showTaskArgs) (tasks dispatch.Tasks, id uuid.UUID, err error) {
	if id, err = parseID("task_id", a.TaskID); err != nil {
		return tasks, id, err
	}
	tasks, err = o.state.RunTasks(ctx, a.Run)
	return tasks, id, err
}

func (o *operator) showTask(ctx context.Context, _ *dispatch.Session, a showTaskArgs) (task, error) {
	tasks, id, err := o.task(ctx, a)
	if err != nil {
		return task{}, err
	}
	d, err := tasks.Get(ctx, id)
	if err != nil {
		return task{}, err
	}
	return detailOf(d), nil
}

func (o *operator) cancelTask(ctx context.Context, _ *dispatch.Session, a showTaskArgs) (taskState, error) {
	tasks, id, err := o.task(ctx, a)
	if err != nil {
		return taskState{}, err
	}
	return stateOf(tasks.Cancel(ctx, id))
}

type redriveRunArgs struct {
	runArg
	redriveArgs
}

func (o *operator) redriveTasks(ctx context.Context, _ *dispatch.Session, a redriveRunArgs) (redriven, error) {
	tasks, err := o.state.RunTasks(ctx, a.Run)
	if err != nil {
		return redriven{}, err
	}
	return redriveTasks(ctx, tasks, a.redriveArgs)
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
	if p.Paused {
		return "queue " + p.Queue + " is paused"
	}
	return "queue " + p.Queue + " is not paused"
}

func (o *operator) pauseQueue(ctx context.Context, _ *dispatch.Session, a pauseArgs) (pausedQueue, error) {
	tasks, err := o.state.RunTasks(ctx, a.Run)
	if err != nil {
		return pausedQueue{}, err
	}
	changed, err := tasks.Pause(ctx, a.Queue, a.Reason)
	return pausedQueue{a.Queue, true, changed}, err
}

func (o *operator) resumeQueue(ctx context.Context, _ *dispatch.Session, a resumeArgs) (pausedQueue, error) {
	tasks, err := o.state.RunTasks(ctx, a.Run)
	if err != nil {
		return pausedQueue{}, err
	}
	changed, err := tasks.Resume(ctx, a.Queue)
	return pausedQueue{a.Queue, false, changed}, err
}
