package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// taskTools returns the tools for queues.
func taskTools() []Tool {
	read := Effect{ReadOnly: true, Idempotent: true}
	return []Tool{
		tool("task_enqueue", "Put a task in a queue",
			"Put a task in a queue of the run. It survives crashes and is executed at least once.",
			Effect{}, enqueue),
		tool("task_claim", "Take tasks from a queue",
			"Take tasks to execute, highest priority first, then oldest. A task is yours until expires_in_ms is over, which task_heartbeat extends, or your session ends; then another worker gets it. An empty list: there is none.",
			Effect{}, inOwnRun(claim)),
		tool("task_heartbeat", "Keep a task for longer", "Extend your claim to ttl_secs from now. STALE_TOKEN: the task is no longer yours, drop it.", Effect{Idempotent: true}, inOwnRun(heartbeat)),
		tool("task_submit", "Finish a task", "Finish your task. failed is final; to have it tried again use task_nack.", Effect{Idempotent: true}, submit),
		tool("task_nack", "Have a task tried again", "Give your task back for another attempt. After max_attempts it is dead.", Effect{}, inOwnRun(nack)),
		tool("task_abandon", "Give a task back", "Give back a task that you cannot do, for another attempt at once.", Effect{}, inOwnRun(abandon)),
		tool("task_get", "See a task", "Show everything about a task and its attempts, except its token.", read, inOwnRun(getTask[taskArg])),
		tool("task_result", "Wait for a task", "Show the state of a task, and its result once it is finished.", read, inOwnRun(taskResult)),
		tool("task_cancel", "Cancel a task", "Cancel an unfinished task. Its worker is told STALE_TOKEN.", Effect{Idempotent: true, Destructive: true}, inOwnRun(cancelTask[taskArg])),
		tool("queue_stats", "See the queues", "Count the tasks of each queue, by state.", read, inOwnRun(queueStats)),
		tool("queue_dead", "See dead tasks", "List the tasks that used up their attempts, and why.", read, inOwnRun(queueDead)),
		tool("queue_redrive", "Try dead tasks again", "Return dead tasks to the queue with a fresh set of attempts.", Effect{}, inOwnRun(redrive)),
	}
}

type queueArg struct {
	Queue string `json:"queue" doc:"name of the queue" min:"1" max:"64"`
}

type taskArg struct {
	TaskID string `json:"task_id" doc:"from the enqueue or the claim"`
}

// claimArgs identify a claim of the caller.
type claimArgs struct {
	taskArg
	Token uint64 `json:"token" doc:"from the claim"`
}

// A taskNamer is the arguments of a tool for one task.
type taskNamer interface{ id() (uuid.UUID, error) }

func (a taskArg) id() (uuid.UUID, error) { return parseID("task_id", a.TaskID) }

// inOwnRun makes a tool's function from one that works on the queues of a run.
func inOwnRun[A, R any](fn func(context.Context, dispatch.Tasks, A) (R, error)) func(context.Context, *dispatch.Session, A) (R, error) {
	return func(ctx context.Context, se *dispatch.Session, a A) (none R, err error) {
		tasks, err := se.Tasks()
		if err != nil {
			return none, err
		}
		result, err := fn(ctx, tasks, a)
		if errors.Is(err, queue.ErrNoQueue) {
			err = fmt.Errorf("%w; queue_stats lists the queues that have tasks", err)
		}
		return result, err
	}
}

// A taskState is the answer to a call that changes a task.
type taskState struct {
	TaskID string `json:"task_id" told:"line"`
	State  string `json:"state" jsonschema:"delayed, ready, in_progress, completed, failed, dead or cancelled" told:"line"`
}

func (s taskState) Text() string {
	line := "task " + s.TaskID + " is " + s.State
	if s.State == queue.Ready.String() || s.State == queue.Delayed.String() {
		line += "; task_result tells its end"
	}
	return line
}

func stateOf(t queue.Task, err error) (taskState, error) {
	if err != nil {
		return taskState{}, err
	}
	return taskState{t.ID.String(), t.State.String()}, nil
}

// taskArgs describe a task to enqueue.
type taskArgs struct {
	queueArg
	Payload     json.RawMessage `json:"payload" doc:"any JSON, ≤ 1 MiB: what to do"`
	Priority    int             `json:"priority,omitempty" doc:"9 first" min:"0" max:"9" default:"0"`
	Delay       seconds         `json:"delay_secs,omitempty" doc:"ready after this delay" min:"0" max:"2592000"`
	RunAt       string          `json:"run_at,omitempty" doc:"ready at this instant, RFC 3339" max:"64"`
	MaxAttempts int             `json:"max_attempts,omitempty" doc:"attempts before it is dead" min:"1" max:"100" default:"5"`
	Key         string          `json:"idempotency_key,omitempty" doc:"the same key gets the same task again" max:"256"`
}

type enqueueArgs struct {
	taskArgs
	fenceArgs
}

// task returns the task to enqueue, without its fence.
func (a taskArgs) task() (queue.NewTask, error) {
	n := queue.NewTask{
		Queue: a.Queue, Payload: a.Payload, IsJSON: true, Priority: a.Priority, Delay: a.Delay.duration(),
		MaxAttempts: a.MaxAttempts, Key: a.Key,
	}
	if a.RunAt != "" {
		at, err := time.Parse(time.RFC3339, a.RunAt)
		if err != nil {
			return n, &registry.ArgumentError{Argument: "run_at", Problem: "must be an instant such as 2026-01-31T08:00:00Z"}
		}
		n.RunAt = at
	}
	return n, nil
}

func enqueue(ctx context.Context, se *dispatch.Session, a enqueueArgs) (taskState, error) {
	n, err := a.task()
	if err != nil {
		return taskState{}, err
	}
	tasks, fence, err := a.fenced(ctx, se)
	if err != nil {
		return taskState{}, err
	}
	n.Fence = fence
	return stateOf(tasks.Enqueue(ctx, n))
}

type claimTaskArgs struct {
	Queues    []string `json:"queues" doc:"queues to claim from; none is preferred" min:"1" max:"16"`
	TTL       seconds  `json:"ttl_secs" doc:"how long each task is yours" min:"1" max:"86400"`
	Wait      seconds  `json:"wait_secs,omitempty" doc:"how long to wait if there is none" min:"0" max:"50" default:"0"`
	Count     int      `json:"count,omitempty" doc:"how many at most" min:"1" max:"100" default:"1"`
	RequestID string   `json:"request_id,omitempty" doc:"the same id gets the same tasks again" max:"128"`
	asArg
}

type claimedTasks struct {
	Tasks []claimedTask `json:"tasks" jsonschema:"empty when there is nothing"`
	keyed bool          // asked with a request_id, whose tasks may be finished
}

type claimedTask struct {
	TaskID      string          `json:"task_id"`
	Queue       string          `json:"queue"`
	Payload     json.RawMessage `json:"payload"`
	Priority    int             `json:"priority"`
	Attempt     int             `json:"attempt" jsonschema:"1 for the first"`
	MaxAttempts int             `json:"max_attempts"`
	Token       uint64          `json:"token" jsonschema:"fencing token: needed to heartbeat and to submit"`
	ExpiresInMS int64           `json:"expires_in_ms"`
	Trace       string          `json:"traceparent,omitempty" jsonschema:"W3C trace context to go on with"`
	TraceState  string          `json:"tracestate,omitempty" jsonschema:"what came with the trace context"`
}

func (c claimedTasks) Text() string {
	if len(c.Tasks) == 0 {
		if c.keyed {
			return "no task; if you have used this request_id before, claim with a new one"
		}
		return "no task"
	}
	if len(c.Tasks) == 1 {
		t := c.Tasks[0]
		return fmt.Sprintf("task %s of %s, attempt %d of %d, token %d; finish it with task_submit, or give it back with task_nack", t.TaskID, t.Queue, t.Attempt, t.MaxAttempts, t.Token)
	}
	return counted(len(c.Tasks), "task", "tasks", "") + "; finish each with task_submit, or give it back with task_nack"
}

func claim(ctx context.Context, tasks dispatch.Tasks, a claimTaskArgs) (claimedTasks, error) {
	got, err := tasks.Claim(ctx, queue.Claim{
		Queues: a.Queues, TTL: a.TTL.duration(), Wait: a.Wait.duration(), Count: a.Count, RequestID: a.RequestID,
		Holder: registry.Holder{Party: a.party(ctx)},
	})
	if err != nil {
		return claimedTasks{}, err
	}
	list := claimedTasks{Tasks: []claimedTask{}, keyed: a.RequestID != ""}
	for _, c := range got {
		parent, state := traceparent.Split(c.Trace)
		list.Tasks = append(list.Tasks, claimedTask{
			TaskID: c.ID.String(), Queue: c.Queue, Payload: c.Payload, Priority: c.Priority,
			Attempt: c.Attempt, MaxAttempts: c.MaxAttempts, Token: c.Token, ExpiresInMS: c.ExpiresIn.Milliseconds(),
			Trace: parent, TraceState: state,
		})
	}
	return list, nil
}

type heartbeatArgs struct {
	claimArgs
	TTL seconds `json:"ttl_secs,omitempty" doc:"default: as long as before" min:"1" max:"86400"`
	asArg
}

type beat struct {
	taskState
	ExpiresInMS int64 `json:"expires_in_ms"`
}

func (b beat) Text() string {
	return fmt.Sprintf("task %s is %s and yours, expires in %ds", b.TaskID, b.State, (b.ExpiresInMS+999)/1000)
}

func heartbeat(ctx context.Context, tasks dispatch.Tasks, a heartbeatArgs) (beat, error) {
	id, err := a.id()
	if err != nil {
		return beat{}, err
	}
	left, err := tasks.Heartbeat(ctx, a.party(ctx), id, a.Token, a.TTL.duration())
	return beat{taskState{a.TaskID, queue.InProgress.String()}, left.Milliseconds()}, err
}

type submitArgs struct {
	claimArgs
	Status string          `json:"status" doc:"how it ended" enum:"completed|failed"`
	Result json.RawMessage `json:"result,omitempty" doc:"any JSON, ≤ 1 MiB"`
	Error  json.RawMessage `json:"error,omitempty" doc:"any JSON, ≤ 1 MiB"`
	fenceArgs
}

// submission returns the submission, without its fence.
func (a submitArgs) submission() (s queue.Submission, err error) {
	s.Token, s.State, s.Result = a.Token, queue.Completed, a.Result
	other, name := a.Error, "error"
	switch a.Status {
	case "completed":
	case "failed":
		s.State, s.Result, other, name = queue.Failed, a.Error, a.Result, "result"
	default:
		return s, &registry.ArgumentError{Argument: "status", Problem: "must be one of completed, failed"}
	}
	if other != nil && string(other) != "null" {
		return s, &registry.ArgumentError{Argument: name, Problem: "must be left out with status " + a.Status}
	}
	s.ID, err = parseID("task_id", a.TaskID)
	return s, err
}

func submit(ctx context.Context, se *dispatch.Session, a submitArgs) (taskState, error) {
	s, err := a.submission()
	if err != nil {
		return taskState{}, err
	}
	tasks, fence, err := a.fenced(ctx, se)
	if err != nil {
		return taskState{}, err
	}
	s.Fence = fence
	return stateOf(tasks.Submit(ctx, s))
}

type nackArgs struct {
	claimArgs
	Delay  *seconds `json:"delay_secs,omitempty" doc:"ready after this delay; default: a random backoff" min:"0" max:"2592000"`
	Reason string   `json:"reason" doc:"kept with the attempt (≤ 512 bytes)" max:"512"`
}

func nack(ctx context.Context, tasks dispatch.Tasks, a nackArgs) (taskState, error) {
	id, err := a.id()
	if err != nil {
		return taskState{}, err
	}
	var delay *time.Duration
	if a.Delay != nil {
		delay = new(a.Delay.duration())
	}
	return stateOf(tasks.Nack(ctx, id, a.Token, delay, a.Reason))
}

func abandon(ctx context.Context, tasks dispatch.Tasks, a claimArgs) (taskState, error) {
	id, err := a.id()
	if err != nil {
		return taskState{}, err
	}
	return stateOf(tasks.Abandon(ctx, id, a.Token))
}

// A task is a task as any actor of its run may see it. It does not include the
// token, which only the claimant has.
type task struct {
	TaskID      string          `json:"task_id" told:"line"`
	Queue       string          `json:"queue" told:"line"`
	State       string          `json:"state" told:"line"`
	Payload     json.RawMessage `json:"payload,omitempty"`
	Result      json.RawMessage `json:"result,omitempty" jsonschema:"of a completed task"`
	Error       json.RawMessage `json:"error,omitempty" jsonschema:"of a failed task"`
	Priority    int             `json:"priority"`
	Attempt     int             `json:"attempt" jsonschema:"executions begun" told:"line"`
	MaxAttempts int             `json:"max_attempts" told:"line"`
	Key         string          `json:"idempotency_key,omitempty"`
	EnqueuedAt  stamp           `json:"enqueued_at"`
	EnqueuedBy  string          `json:"enqueued_by" jsonschema:"path of the actor"`
	RunAt       stamp           `json:"run_at,omitempty" jsonschema:"when a delayed task is due"`
	FinishedAt  stamp           `json:"finished_at,omitempty"`
	ExpiresInMS *int64          `json:"expires_in_ms,omitempty" jsonschema:"of the claim on a task in progress"`
	Attempts    []attempt       `json:"attempts"`
}

type attempt struct {
	Path    string `json:"path" jsonschema:"of the actor"`
	As      string `json:"as,omitempty" jsonschema:"which of its sub-agents"`
	BeganAt stamp  `json:"began_at"`
	EndedAt stamp  `json:"ended_at,omitempty"`
	Cause   string `json:"cause,omitempty" jsonschema:"how it ended"`
}

func (t task) Text() string {
	return fmt.Sprintf("task %s of %s is %s, attempt %d of %d", t.TaskID, t.Queue, t.State, t.Attempt, t.MaxAttempts)
}

func taskOf(t queue.Task) task {
	out := task{
		TaskID: t.ID.String(), Queue: t.Queue, State: t.State.String(), Priority: t.Priority,
		Attempt: t.Attempt, MaxAttempts: t.MaxAttempts, Key: t.Key,
		EnqueuedAt: stampOf(t.EnqueuedAt), EnqueuedBy: t.EnqueuedBy,
		RunAt: instant(t.DueAt), FinishedAt: instant(t.FinishedAt), Attempts: []attempt{},
	}
	if t.State == queue.InProgress {
		out.ExpiresInMS = new(t.ExpiresIn.Milliseconds())
	}
	for _, a := range t.Attempts {
		out.Attempts = append(out.Attempts, attempt{a.Path, a.Party, stampOf(a.BeganAt), instant(a.EndedAt), a.Cause})
	}
	return out
}

func detailOf(d queue.Detail) task {
	t := taskOf(d.Task)
	t.Payload = d.Payload
	switch d.State {
	case queue.Failed:
		t.Error = d.Result
	default:
		t.Result = d.Result
	}
	return t
}

// instant is stampOf for an instant that may be absent: the zero time.
func instant(at time.Time) stamp {
	if at.IsZero() {
		return ""
	}
	return stampOf(at)
}

func getTask[A taskNamer](ctx context.Context, tasks dispatch.Tasks, a A) (task, error) {
	id, err := a.id()
	if err != nil {
		return task{}, err
	}
	d, err := tasks.Get(ctx, id)
	if err != nil {
		return task{}, err
	}
	return detailOf(d), nil
}

type resultArgs struct {
	taskArg
	Wait seconds `json:"wait_secs,omitempty" doc:"how long to wait if there is none" min:"0" max:"50" default:"0"`
}

type result struct {
	State  string          `json:"state" told:"line"`
	Result json.RawMessage `json:"result,omitempty" jsonschema:"of a completed task"`
	Error  json.RawMessage `json:"error,omitempty" jsonschema:"of a failed task"`
}

func (r result) Text() string {
	for _, state := range statesOf(liveTasks) {
		if r.State == state.String() {
			return r.State + "; call again with wait_secs to wait for its end"
		}
	}
	if r.State == queue.Dead.String() {
		return r.State + "; task_get shows the cause of each attempt"
	}
	return r.State
}

func taskResult(ctx context.Context, tasks dispatch.Tasks, a resultArgs) (result, error) {
	id, err := a.id()
	if err != nil {
		return result{}, err
	}
	d, err := tasks.Wait(ctx, caller(ctx), id, a.Wait.duration())
	if err != nil {
		return result{}, err
	}
	t := detailOf(d)
	return result{t.State, t.Result, t.Error}, nil
}

func cancelTask[A taskNamer](ctx context.Context, tasks dispatch.Tasks, a A) (taskState, error) {
	id, err := a.id()
	if err != nil {
		return taskState{}, err
	}
	return stateOf(tasks.Cancel(ctx, id))
}

type statsArgs struct {
	Queue string `json:"queue,omitempty" doc:"default: all that have tasks" max:"64"`
	After string `json:"after,omitempty" doc:"last queue of the previous reply" max:"64"`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"100"`
}

type queueList struct {
	Queues []queueCounts `json:"queues"`
	More   bool          `json:"more,omitempty" jsonschema:"there are more queues: ask again with after"`
}

type queueCounts struct {
	Queue      string `json:"queue"`
	Ready      uint64 `json:"ready"`
	Delayed    uint64 `json:"delayed"`
	InProgress uint64 `json:"in_progress"`
	Completed  uint64 `json:"completed" jsonschema:"and not forgotten yet, as the next three"`
	Failed     uint64 `json:"failed"`
	Dead       uint64 `json:"dead"`
	Cancelled  uint64 `json:"cancelled"`
	Corrupt    uint64 `json:"corrupt,omitempty" jsonschema:"set aside because their records cannot be read"`
	Paused     bool   `json:"paused,omitempty" jsonschema:"its tasks are given to nobody"`
	Why        string `json:"paused_reason,omitempty"`
}

func (l queueList) Text() string {
	next := ""
	if l.More {
		next = l.Queues[len(l.Queues)-1].Queue
	}
	return counted(len(l.Queues), "queue", "queues", next)
}

func countsOf(list []queue.Stats, more bool) queueList {
	l := queueList{Queues: []queueCounts{}, More: more}
	for _, s := range list {
		l.Queues = append(l.Queues, queueCounts{
			Queue: s.Queue, Ready: s.ReadyTotal(), Delayed: s.Delayed, InProgress: s.InProgress,
			Completed: s.Completed, Failed: s.Failed, Dead: s.Dead, Cancelled: s.Cancelled, Corrupt: s.Corrupt, Paused: s.Paused, Why: s.PauseReason,
		})
	}
	return l
}

func queueStats(ctx context.Context, tasks dispatch.Tasks, a statsArgs) (queueList, error) {
	list, more, err := tasks.Stats(ctx, a.Queue, a.After, a.Limit)
	counts := countsOf(list, more)
	if n := fits(counts.Queues); n < len(counts.Queues) {
		counts.Queues, counts.More = counts.Queues[:n], true
	}
	return counts, err
}

type deadArgs struct {
	queueArg
	After string `json:"after,omitempty" doc:"next of the previous reply" max:"64"`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"100" default:"20"`
}

type taskList struct {
	Next  string `json:"next,omitempty" jsonschema:"there are more: ask again with after"`
	Tasks []task `json:"tasks"`
}

func (l taskList) Text() string {
	if len(l.Tasks) == 1 && l.Next == "" {
		return l.Tasks[0].Text()
	}
	return counted(len(l.Tasks), "task", "tasks", l.Next)
}

func tasksOf(list []queue.Task, next string) taskList {
	l := taskList{Tasks: []task{}, Next: next}
	for _, t := range list {
		l.Tasks = append(l.Tasks, taskOf(t))
	}
	return l
}

func queueDead(ctx context.Context, tasks dispatch.Tasks, a deadArgs) (taskList, error) {
	return fitting(a.Limit, func(limit int) (taskList, []task, error) {
		found, next, err := tasks.List(ctx, a.Queue, queue.Dead, a.After, limit)
		list := tasksOf(found, next)
		return list, list.Tasks, err
	})
}

type redriveArgs struct {
	queueArg
	TaskIDs []string `json:"task_ids,omitempty" doc:"default: the first 100" min:"1" max:"100" limits:"true"`
}

type redriven struct {
	TaskIDs []string `json:"task_ids" jsonschema:"those that are tried again"`
}

func (r redriven) Text() string {
	line := counted(len(r.TaskIDs), "task", "tasks", "") + " redriven"
	if n := len(r.TaskIDs); n == 0 || n == queue.MaxRedrive {
		line += "; queue_dead lists the dead tasks"
	}
	return line
}

func redrive(ctx context.Context, tasks dispatch.Tasks, a redriveArgs) (redriven, error) {
	var ids []uuid.UUID
	for _, text := range a.TaskIDs {
		id, err := parseID("task_ids", text)
		if err != nil {
			return redriven{}, err
		}
		ids = append(ids, id)
	}
	done, err := tasks.Redrive(ctx, a.Queue, ids)
	out := redriven{TaskIDs: []string{}}
	for _, id := range done {
		out.TaskIDs = append(out.TaskIDs, id.String())
	}
	return out, err
}
