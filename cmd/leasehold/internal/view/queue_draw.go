package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/queue"
)

// shownQueue is a queue in the format of operator_queue_stats.
type shownQueue struct {
	Queue      string
	Ready      int
	Delayed    int
	InProgress int `json:"in_progress"`
	Completed  int
	Failed     int
	Dead       int
	Cancelled  int
	Corrupt    int

	Paused       bool
	PausedReason string `json:"paused_reason"`
}

// queueList is the answer of operator_queue_stats.
type queueList struct {
	Queues []shownQueue
	More   bool
}

func drawQueues(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[queueList](object)
	if err != nil {
		return "", err
	}
	if len(list.Queues) == 0 {
		return "no queues\n", nil
	}
	text := queueTable(list.Queues).Render(p)
	if list.More {
		text += p.Dim("there are more: name one with --queue") + "\n"
	}
	return text, nil
}

// queueTable returns a table with one row per queue. If there is little room, it first
// leaves out states without tasks, and then shortens the names of the states.
func queueTable(list []shownQueue) *terminal.Table {
	t := &terminal.Table{Columns: []terminal.Column{{Head: "QUEUE", Want: 20, Bare: 8, Left: true}}}
	for _, head := range []string{"READY", "DELAYED", "IN PROGRESS", "COMPLETED", "FAILED", "DEAD", "CANCELLED", "CORRUPT"} {
		t.Columns = append(t.Columns, terminal.Column{Head: head, Rank: terminal.IfEmpty, Bare: 5, Optional: head == "CORRUPT"})
	}
	paused := slices.ContainsFunc(list, func(q shownQueue) bool { return q.Paused })
	if paused {
		t.Columns = append(t.Columns, terminal.Column{Head: "PAUSED", Want: 20, Bare: 8})
	}
	for _, q := range list {
		cells := []string{q.Queue}
		for _, n := range []int{q.Ready, q.Delayed, q.InProgress, q.Completed, q.Failed, q.Dead, q.Cancelled, q.Corrupt} {
			cells = append(cells, count(n))
		}
		if paused {
			cells = append(cells, q.PausedReason)
		}
		t.AddTexts(cells...)
	}
	return t
}

// shownTask is a task in the format of operator_task.
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
	shownHolder
	BeganAt time.Time  `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"`
	Cause   string
}

func (t shownTask) attempts() string { return fmt.Sprintf("%d of %d", t.Attempt, t.MaxAttempts) }

// last returns the last attempt at a task, or a zero attempt if there is none.
func (t shownTask) last() (a shownAttempt) {
	if n := len(t.Attempts); n > 0 {
		a = t.Attempts[n-1]
	}
	return a
}

// holder returns the party that works on a task. expires returns the time
// until it loses the task.
func (t shownTask) holder() string {
	if t.State != queue.InProgress.String() {
		return ""
	}
	return t.last().String()
}

func (t shownTask) expires(since time.Duration) string {
	if t.ExpiresIn == nil {
		return ""
	}
	return terminal.Remaining(*t.ExpiresIn, since)
}

// note returns what else a list says about a task.
func (t shownTask) note() string {
	last := t.last()
	switch {
	case t.FinishedAt != nil:
		return terminal.Brief(time.Since(*t.FinishedAt)) + " ago"
	case t.State == queue.InProgress.String():
		return "began " + terminal.Brief(time.Since(last.BeganAt)) + " ago"
	case t.RunAt != nil:
		return "due in " + terminal.Remaining(terminal.Millis(time.Until(*t.RunAt).Milliseconds()), 0)
	case last.Cause != "":
		return fmt.Sprintf("back from %s: %s", last.String(), last.Cause)
	default:
		return ""
	}
}

// drawTasks draws a list of at most limit tasks.
func drawTasks(limit int, state string) drawing {
	columns := []terminal.Column{
		{Head: "TASK", Want: 13, Bare: 9, Left: true}, // the ends of ids differ
		{Head: "QUEUE", Want: 12, Bare: 8, Left: true},
		{Head: "STATE"},
		{Head: "HOLDER", Rank: terminal.IfEmpty, Want: 10, Bare: 8, Left: true},
		{Head: "EXPIRES", Rank: terminal.IfEmpty},
		{Head: "PRIORITY", Rank: terminal.Minor + 2},
		{Head: "ATTEMPT", Rank: terminal.Minor + 1},
		{Head: "AGE", Rank: terminal.Minor + 3},
		{Head: "NOTE", Rank: terminal.Minor, Want: 20},
	}
	return drawList(limit, "no "+strings.ReplaceAll(state, "_", " ")+" tasks", columns, func(t shownTask, since time.Duration) []string {
		return []string{
			t.TaskID, t.Queue, t.State, t.holder(), t.expires(since), strconv.Itoa(t.Priority), t.attempts(),
			terminal.Brief(time.Since(t.EnqueuedAt)), terminal.Clip(t.note(), maxShownValue),
		}
	})
}

// drawDead draws dead tasks with the cause of each attempt.
func drawDead(limit int) drawing {
	columns := []terminal.Column{
		{Head: "TASK", Want: 13, Bare: 9, Left: true},
		{Head: "QUEUE", Want: 12, Bare: 8, Left: true},
		{Head: "DIED", Rank: terminal.Minor},
		{Head: "ATTEMPTS", Want: 20, Bare: 10},
	}
	return drawList(limit, "no dead tasks", columns, func(t shownTask, _ time.Duration) []string {
		var causes []string
		for _, a := range t.Attempts {
			causes = append(causes, a.String()+": "+a.Cause)
		}
		return []string{t.TaskID, t.Queue, t.note(), terminal.Clip(strings.Join(causes, "; "), maxShownValue)}
	})
}

type drawing = func(object json.RawMessage, since time.Duration, p terminal.Paint) (string, error)

// drawList draws tasks. If there are none, it prints the text nothing.
func drawList(limit int, nothing string, columns []terminal.Column, cells func(t shownTask, since time.Duration) []string) drawing {
	return func(object json.RawMessage, since time.Duration, p terminal.Paint) (string, error) {
		list, err := connection.Decode[struct{ Tasks []shownTask }](object)
		if err != nil {
			return "", err
		}
		if len(list.Tasks) == 0 {
			return nothing + "\n", nil
		}
		t := terminal.Table{Columns: columns}
		for _, task := range list.Tasks {
			t.AddTexts(cells(task, since)...)
		}
		text := t.Render(p)
		if len(list.Tasks) == limit {
			text += p.Dim("there may be more: name a queue or a state, or raise --limit") + "\n"
		}
		return text, nil
	}
}

// maxShownPayload limits the width of a payload or a result. JSON shows all of it.
const maxShownPayload = 4000

// drawTask draws one task with all its fields.
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
	t := &terminal.Table{Columns: []terminal.Column{
		{Head: "ATTEMPT"},
		{Head: "ACTOR", Want: 12, Bare: 8, Left: true},
		{Head: "BEGAN", Rank: terminal.Minor},
		{Head: "TOOK", Rank: terminal.Minor + 1},
		{Head: "ENDED", Want: 24, Bare: 10},
	}}
	for i, a := range attempts {
		took := time.Since(a.BeganAt)
		if a.EndedAt != nil {
			took = a.EndedAt.Sub(a.BeganAt)
		}
		t.AddTexts(strconv.Itoa(i+1), a.String(), terminal.Brief(time.Since(a.BeganAt))+" ago", terminal.Brief(took), a.Cause)
	}
	return t
}
