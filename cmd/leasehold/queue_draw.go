package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/queue"
)

// shownQueue is a queue as operator_queue_stats tells it.
type shownQueue struct {
	Queue      string
	Ready      int
	Delayed    int
	InProgress int `json:"in_progress"`
	Completed  int
	Failed     int
	Dead       int
	Cancelled  int
}

func drawQueues(object json.RawMessage, _ time.Duration, p paint) (string, error) {
	list, err := decode[struct{ Queues []shownQueue }](object)
	if err != nil {
		return "", err
	}
	if len(list.Queues) == 0 {
		return "no queues\n", nil
	}
	t := table{head: []string{"QUEUE", "READY", "DELAYED", "IN PROGRESS", "COMPLETED", "FAILED", "DEAD", "CANCELLED"}}
	for _, q := range list.Queues {
		t.add(q.Queue, count(q.Ready), count(q.Delayed), count(q.InProgress), count(q.Completed), count(q.Failed), count(q.Dead), count(q.Cancelled))
	}
	return t.render(p), nil
}

// shownTask is a task as operator_task tells it.
type shownTask struct {
	TaskID      string `json:"task_id"`
	Queue       string
	State       string
	Payload     json.RawMessage
	Result      json.RawMessage
	Error       json.RawMessage
	Priority    int
	Attempt     int
	MaxAttempts int        `json:"max_attempts"`
	Key         string     `json:"idempotency_key"`
	EnqueuedAt  time.Time  `json:"enqueued_at"`
	EnqueuedBy  string     `json:"enqueued_by"`
	RunAt       *time.Time `json:"run_at"`
	FinishedAt  *time.Time `json:"finished_at"`
	ExpiresIn   *millis    `json:"expires_in_ms"`
	Attempts    []shownAttempt
}

type shownAttempt struct {
	Path    string
	BeganAt time.Time  `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"`
	Cause   string
}

func (t shownTask) attempts() string { return fmt.Sprintf("%d of %d", t.Attempt, t.MaxAttempts) }

// standing is what is to be known of a task in a list, beside its state.
func (t shownTask) standing() string {
	var last shownAttempt
	if n := len(t.Attempts); n > 0 {
		last = t.Attempts[n-1]
	}
	switch {
	case t.FinishedAt != nil:
		return brief(time.Since(*t.FinishedAt)) + " ago"
	case t.State == queue.InProgress.String():
		return fmt.Sprintf("%s, for %s", last.Path, brief(time.Since(last.BeganAt)))
	case t.RunAt != nil:
		return "due in " + remaining(millis(time.Until(*t.RunAt).Milliseconds()), 0)
	case last.Cause != "":
		return fmt.Sprintf("back from %s: %s", last.Path, last.Cause)
	default:
		return ""
	}
}

// drawTasks draws a list of which no more than limit were asked for.
func drawTasks(limit int) func(json.RawMessage, time.Duration, paint) (string, error) {
	head := []string{"TASK", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "AGE", ""}
	return drawList(limit, head, func(t shownTask) []string {
		return []string{
			t.TaskID, t.Queue, t.State, strconv.Itoa(t.Priority), t.attempts(),
			brief(time.Since(t.EnqueuedAt)), clip(t.standing(), maxShownValue),
		}
	})
}

// drawDead draws dead tasks with the cause of each attempt.
func drawDead(limit int) func(json.RawMessage, time.Duration, paint) (string, error) {
	head := []string{"TASK", "QUEUE", "DIED", "ATTEMPTS"}
	return drawList(limit, head, func(t shownTask) []string {
		var causes []string
		for _, a := range t.Attempts {
			causes = append(causes, a.Path+": "+a.Cause)
		}
		return []string{t.TaskID, t.Queue, t.standing(), clip(strings.Join(causes, "; "), maxShownValue)}
	})
}

func drawList(limit int, head []string, cells func(shownTask) []string) func(json.RawMessage, time.Duration, paint) (string, error) {
	return func(object json.RawMessage, _ time.Duration, p paint) (string, error) {
		list, err := decode[struct{ Tasks []shownTask }](object)
		if err != nil {
			return "", err
		}
		if len(list.Tasks) == 0 {
			return "no tasks\n", nil
		}
		t := table{head: head}
		for _, task := range list.Tasks {
			t.add(cells(task)...)
		}
		text := t.render(p)
		if len(list.Tasks) == limit {
			text += p.dim("there may be more: name a queue or a state, or raise --limit") + "\n"
		}
		return text, nil
	}
}

// maxShownPayload is how many characters of a payload or a result a person is
// shown; JSON has all.
const maxShownPayload = 4000

// drawTask draws one task with all there is of it.
func drawTask(object json.RawMessage, p paint) (string, error) {
	task, err := decode[shownTask](object)
	if err != nil {
		return "", err
	}
	state := task.State
	if task.ExpiresIn != nil {
		state += ", expires in " + remaining(*task.ExpiresIn, 0)
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s %s\n", p.bold(fmt.Sprintf("%-9s", name)), clip(printable(value), maxShownPayload))
		}
	}
	line("task", task.TaskID)
	line("queue", task.Queue)
	line("state", state)
	line("priority", strconv.Itoa(task.Priority))
	line("attempt", task.attempts())
	line("enqueued", fmt.Sprintf("%s ago by %s", brief(time.Since(task.EnqueuedAt)), task.EnqueuedBy))
	if task.RunAt != nil {
		line("due in", remaining(millis(time.Until(*task.RunAt).Milliseconds()), 0))
	}
	if task.FinishedAt != nil {
		line("finished", brief(time.Since(*task.FinishedAt))+" ago")
	}
	line("key", task.Key)
	line("payload", string(task.Payload))
	line("result", string(task.Result))
	line("error", string(task.Error))
	if len(task.Attempts) > 0 {
		b.WriteString("\n" + drawAttempts(task.Attempts).render(p))
	}
	return b.String(), nil
}

func drawAttempts(attempts []shownAttempt) *table {
	t := &table{head: []string{"ATTEMPT", "ACTOR", "BEGAN", "TOOK", "ENDED"}}
	for i, a := range attempts {
		took := time.Since(a.BeganAt)
		if a.EndedAt != nil {
			took = a.EndedAt.Sub(a.BeganAt)
		}
		t.add(strconv.Itoa(i+1), a.Path, brief(time.Since(a.BeganAt))+" ago", brief(took), a.Cause)
	}
	return t
}
