package view

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
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

func drawQueues(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[struct{ Queues []shownQueue }](object)
	if err != nil {
		return "", err
	}
	if len(list.Queues) == 0 {
		return "no queues\n", nil
	}
	t := terminal.Table{Head: []string{"QUEUE", "READY", "DELAYED", "IN PROGRESS", "COMPLETED", "FAILED", "DEAD", "CANCELLED"}}
	for _, q := range list.Queues {
		t.Add(q.Queue, count(q.Ready), count(q.Delayed), count(q.InProgress), count(q.Completed), count(q.Failed), count(q.Dead), count(q.Cancelled))
	}
	return t.Render(p), nil
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
	MaxAttempts int              `json:"max_attempts"`
	Key         string           `json:"idempotency_key"`
	EnqueuedAt  time.Time        `json:"enqueued_at"`
	EnqueuedBy  string           `json:"enqueued_by"`
	RunAt       *time.Time       `json:"run_at"`
	FinishedAt  *time.Time       `json:"finished_at"`
	ExpiresIn   *terminal.Millis `json:"expires_in_ms"`
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
		return terminal.Brief(time.Since(*t.FinishedAt)) + " ago"
	case t.State == queue.InProgress.String():
		return fmt.Sprintf("%s, for %s", last.Path, terminal.Brief(time.Since(last.BeganAt)))
	case t.RunAt != nil:
		return "due in " + terminal.Remaining(terminal.Millis(time.Until(*t.RunAt).Milliseconds()), 0)
	case last.Cause != "":
		return fmt.Sprintf("back from %s: %s", last.Path, last.Cause)
	default:
		return ""
	}
}

// drawTasks draws a list of which no more than limit were asked for.
func drawTasks(limit int) func(json.RawMessage, time.Duration, terminal.Paint) (string, error) {
	head := []string{"TASK", "QUEUE", "STATE", "PRIORITY", "ATTEMPT", "AGE", ""}
	return drawList(limit, head, func(t shownTask) []string {
		return []string{
			t.TaskID, t.Queue, t.State, strconv.Itoa(t.Priority), t.attempts(),
			terminal.Brief(time.Since(t.EnqueuedAt)), terminal.Clip(t.standing(), maxShownValue),
		}
	})
}

// drawDead draws dead tasks with the cause of each attempt.
func drawDead(limit int) func(json.RawMessage, time.Duration, terminal.Paint) (string, error) {
	head := []string{"TASK", "QUEUE", "DIED", "ATTEMPTS"}
	return drawList(limit, head, func(t shownTask) []string {
		var causes []string
		for _, a := range t.Attempts {
			causes = append(causes, a.Path+": "+a.Cause)
		}
		return []string{t.TaskID, t.Queue, t.standing(), terminal.Clip(strings.Join(causes, "; "), maxShownValue)}
	})
}

func drawList(limit int, head []string, cells func(shownTask) []string) func(json.RawMessage, time.Duration, terminal.Paint) (string, error) {
	return func(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
		list, err := connection.Decode[struct{ Tasks []shownTask }](object)
		if err != nil {
			return "", err
		}
		if len(list.Tasks) == 0 {
			return "no tasks\n", nil
		}
		t := terminal.Table{Head: head}
		for _, task := range list.Tasks {
			t.Add(cells(task)...)
		}
		text := t.Render(p)
		if len(list.Tasks) == limit {
			text += p.Dim("there may be more: name a queue or a state, or raise --limit") + "\n"
		}
		return text, nil
	}
}

// maxShownPayload is how many characters of a payload or a result a person is
// shown; JSON has all.
const maxShownPayload = 4000

// drawTask draws one task with all there is of it.
func drawTask(object json.RawMessage, p terminal.Paint) (string, error) {
	task, err := connection.Decode[shownTask](object)
	if err != nil {
		return "", err
	}
	state := task.State
	if task.ExpiresIn != nil {
		state += ", expires in " + terminal.Remaining(*task.ExpiresIn, 0)
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s %s\n", p.Bold(fmt.Sprintf("%-9s", name)), terminal.Clip(terminal.Printable(value), maxShownPayload))
		}
	}
	line("task", task.TaskID)
	line("queue", task.Queue)
	line("state", state)
	line("priority", strconv.Itoa(task.Priority))
	line("attempt", task.attempts())
	line("enqueued", fmt.Sprintf("%s ago by %s", terminal.Brief(time.Since(task.EnqueuedAt)), task.EnqueuedBy))
	if task.RunAt != nil {
		line("due in", terminal.Remaining(terminal.Millis(time.Until(*task.RunAt).Milliseconds()), 0))
	}
	if task.FinishedAt != nil {
		line("finished", terminal.Brief(time.Since(*task.FinishedAt))+" ago")
	}
	line("key", task.Key)
	line("payload", string(task.Payload))
	line("result", string(task.Result))
	line("error", string(task.Error))
	if len(task.Attempts) > 0 {
		b.WriteString("\n" + drawAttempts(task.Attempts).Render(p))
	}
	return b.String(), nil
}

func drawAttempts(attempts []shownAttempt) *terminal.Table {
	t := &terminal.Table{Head: []string{"ATTEMPT", "ACTOR", "BEGAN", "TOOK", "ENDED"}}
	for i, a := range attempts {
		took := time.Since(a.BeganAt)
		if a.EndedAt != nil {
			took = a.EndedAt.Sub(a.BeganAt)
		}
		t.Add(strconv.Itoa(i+1), a.Path, terminal.Brief(time.Since(a.BeganAt))+" ago", terminal.Brief(took), a.Cause)
	}
	return t
}
