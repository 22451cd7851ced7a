package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/queue"
	"github.com/leasehold/leasehold/registry"
)

// Programs returns the tools that programs need and models do not. Agents may
// call them but do not see them, because a model pays for its list of tools
// with every request.
func Programs() []Tool {
	read := Effect{ReadOnly: true, Idempotent: true}
	return grouped("programs", []Tool{
		tool("lease_get", "See a lease", "One lease that you can ask for, with its holders and who waits, or else one that overlaps with it, such as that of its directory; an empty list: nobody holds any.", read, getLease),
		tool("lease_get_by_id", "See a lease of yours", "A lease of yours by its lease_id, from any session of yours, with who waits. LEASE_LOST says how it ended.", read, getLeaseByID),
		tool("lease_history", "See what happened to a lease", "The events of a lease, in the order of their revisions.", read, leaseHistory),
		tool("lease_history_by_id", "See what happened to a lease of yours", "The events of a lease that you hold or have lost, by its lease_id.", read, leaseHistoryByID),
		tool("task_enqueue_many", "Put several tasks in queues", "Put up to 100 tasks in queues, all of them or none, in one commit.", Effect{}, enqueueMany),
		tool("task_submit_many", "Finish several tasks", "Finish up to 100 tasks in one commit. Each has its own answer, and a refused one stops no other.", Effect{Idempotent: true}, submitMany),
		tool("task_list", "See tasks", "Tasks of a queue in one state.", read, inOwnRun(listTasks)),
	})
}

func getLease(ctx context.Context, se *dispatch.Session, a scoped) (leaseList, error) {
	scope, key, err := a.lease(ctx, se)
	if err != nil {
		return leaseList{}, err
	}
	held, err := se.LeasesOn(ctx, scope, key)
	page := dispatch.LeasePage{Leases: held}
	if len(held) == 0 && err == nil {
		var s registry.TokenStanding
		s, err = se.CheckToken(ctx, scope, key, 0)
		if s.Reserved != nil {
			page.Reserved = []dispatch.ReservedInfo{{Reservation: *s.Reserved, Scope: scope}}
		}
	}
	return leaseListOf(page, se.ID()), err
}

func (a leaseIDArg) find(ctx context.Context, se *dispatch.Session) (dispatch.LeaseInfo, error) {
	id, err := a.id()
	if err != nil {
		return dispatch.LeaseInfo{}, err
	}
	return se.LeaseByID(ctx, id)
}

func (l listedLease) Text() string {
	return fmt.Sprintf("%s held by %s with token %d, %s", l.named(l.Name+l.Key), l.Holder.who(), l.Token, l.expires())
}

func getLeaseByID(ctx context.Context, se *dispatch.Session, a leaseIDArg) (listedLease, error) {
	info, err := a.find(ctx, se)
	if err != nil {
		return listedLease{}, err
	}
	l := leaseListOf(dispatch.LeasePage{Leases: []dispatch.LeaseInfo{info}}, se.ID()).Leases[0]
	l.LeaseID = info.ID.String() // the caller knows it, from whichever session
	return l, nil
}

// pageArgs are the part of a lease's events that is asked for.
type pageArgs struct {
	Since uint64 `json:"since,omitempty" doc:"only events with a greater revision" min:"0"`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"500" default:"100"`
}

func (a pageArgs) history(ctx context.Context, se *dispatch.Session, scope dispatch.Scope, key string) (eventList, error) {
	page, err := se.History(ctx, dispatch.EventQuery{Scope: scope, Key: key, Since: a.Since, Limit: a.Limit})
	return eventsOf(page), err
}

type historyArgs struct {
	scoped
	pageArgs
}

func leaseHistory(ctx context.Context, se *dispatch.Session, a historyArgs) (eventList, error) {
	scope, key, err := a.lease(ctx, se)
	if err != nil {
		return eventList{}, err
	}
	return a.history(ctx, se, scope, key)
}

type historyByIDArgs struct {
	leaseIDArg
	pageArgs
}

func leaseHistoryByID(ctx context.Context, se *dispatch.Session, a historyByIDArgs) (eventList, error) {
	info, err := a.find(ctx, se)
	scope, key := info.Scope, info.Key
	if lost, ok := errors.AsType[*registry.LostError](err); ok {
		scope, key = dispatch.Scope(scopeWord(lost.Scope)), lost.Key
	} else if err != nil {
		return eventList{}, err
	}
	return a.history(ctx, se, scope, key)
}

type enqueueManyArgs struct {
	Tasks []newTask `json:"tasks" doc:"in the order in which they are to be executed" min:"1" max:"100"`
	fenceArgs
}

// A newTask is one of several tasks to enqueue.
type newTask struct {
	taskArgs
	traced
}

// taskStates is the answer to a call that changes several tasks.
type taskStates struct {
	Tasks []taskState `json:"tasks" jsonschema:"in the order given"`
}

func (l taskStates) Text() string { return counted(len(l.Tasks), "task", "tasks", "") + " enqueued" }

func enqueueMany(ctx context.Context, se *dispatch.Session, a enqueueManyArgs) (taskStates, error) {
	tasks, fence, err := a.fenced(ctx, se)
	if err != nil {
		return taskStates{}, err
	}
	list := make([]queue.NewTask, len(a.Tasks))
	for i, t := range a.Tasks {
		if list[i], err = t.task(); err != nil {
			return taskStates{}, inTasks(i, err)
		}
		if list[i].Trace, err = t.trace(); err != nil {
			return taskStates{}, inTasks(i, err)
		}
		list[i].Fence = fence
	}
	made, err := tasks.EnqueueMany(ctx, list)
	if err != nil {
		return taskStates{}, err
	}
	states := taskStates{Tasks: make([]taskState, 0, len(made))}
	for _, t := range made {
		states.Tasks = append(states.Tasks, taskState{t.ID.String(), t.State.String()})
	}
	return states, nil
}

// inTasks adds the index of the task that is wrong to an error.
func inTasks(i int, err error) error { return fmt.Errorf("tasks[%d]: %w", i, err) }

type submitManyArgs struct {
	Tasks []finishedTask `json:"tasks" doc:"the claims to end" min:"1" max:"100"`
	fenceArgs
}

// A finishedTask is one of several tasks to submit.
type finishedTask struct {
	TaskID string          `json:"task_id" doc:"from the claim"`
	Token  uint64          `json:"token" doc:"from the claim"`
	Status string          `json:"status" doc:"how it ended" enum:"completed|failed"`
	Result json.RawMessage `json:"result,omitempty" doc:"of a completed task: any JSON, ≤ 1 MiB"`
	Error  json.RawMessage `json:"error,omitempty" doc:"of a failed task: any JSON, ≤ 1 MiB"`
	traced
}

// A traced is a task whose caller has a span for it alone.
type traced struct {
	Parent string `json:"traceparent,omitempty" doc:"W3C trace context of whoever enqueues or submits it"`
	State  string `json:"tracestate,omitempty" doc:"what belongs to the trace context"`
}

// trace returns the trace context as the daemon keeps it.
func (t traced) trace() (string, error) {
	if t.Parent != "" && !traceparent.Valid(t.Parent) {
		return "", &registry.ArgumentError{Argument: traceparent.Header, Problem: "must be a W3C trace context such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	}
	return traceparent.Join(t.Parent, t.State), nil
}

// submitted is the answer to several submissions.
type submitted struct {
	Tasks []submittedTask `json:"tasks" jsonschema:"in the order given"`
}

type submittedTask struct {
	TaskID  string          `json:"task_id"`
	State   string          `json:"state,omitempty" jsonschema:"completed or failed; absent: it was refused"`
	Refusal json.RawMessage `json:"refusal,omitempty" jsonschema:"code, message and what comes with the code"`
}

func (s submitted) Text() string {
	refused := 0
	for _, t := range s.Tasks {
		if t.Refusal != nil {
			refused++
		}
	}
	return fmt.Sprintf("%s submitted, %d refused", counted(len(s.Tasks)-refused, "task", "tasks", ""), refused)
}

func submitMany(ctx context.Context, se *dispatch.Session, a submitManyArgs) (submitted, error) {
	tasks, fence, err := a.fenced(ctx, se)
	if err != nil {
		return submitted{}, err
	}
	list, from := make([]queue.Submission, len(a.Tasks)), make([]string, len(a.Tasks))
	for i, t := range a.Tasks {
		one := submitArgs{claimArgs: claimArgs{taskArg{t.TaskID}, t.Token}, Status: t.Status, Result: t.Result, Error: t.Error}
		if list[i], err = one.submission(); err != nil {
			return submitted{}, inTasks(i, err)
		}
		if from[i], err = t.trace(); err != nil {
			return submitted{}, inTasks(i, err)
		}
		list[i].Fence = fence
	}
	done, err := tasks.SubmitMany(ctx, list, from)
	if err != nil {
		return submitted{}, err
	}
	answer := submitted{Tasks: make([]submittedTask, 0, len(done))}
	for i, d := range done {
		t := submittedTask{TaskID: list[i].ID.String()}
		if d.Err == nil {
			t.State = d.Task.State.String()
		} else {
			_ = se.NoteRefused(ctx, caller(ctx), "task_submit", d.Err) // the refusal is reported even if this fails
			t.Refusal = RefusalOf(d.Err).Reply().Object
		}
		answer.Tasks = append(answer.Tasks, t)
	}
	return answer, nil
}

type listTasksArgs struct {
	queueArg
	State string `json:"state,omitempty" doc:"ready: in the order in which they are claimed" enum:"delayed|ready|in_progress|completed|failed|dead|cancelled" default:"\"ready\""`
	After string `json:"after,omitempty" doc:"next of the previous reply" max:"128"`
	Limit int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"1000" default:"100"`
}

func listTasks(ctx context.Context, tasks dispatch.Tasks, a listTasksArgs) (taskList, error) {
	list, next, err := tasks.List(ctx, a.Queue, statesOf(a.State)[0], a.After, a.Limit)
	return tasksOf(list, next), err
}
