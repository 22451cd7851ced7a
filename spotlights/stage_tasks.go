package spotlights

import (
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/leasehold/leasehold/dispatch/client"
)

// jobs is the name of the stories' queue.
const jobs = "jobs"

// A task is a claimed task as an agent receives it.
type task struct {
	ID          string          `json:"task_id"`
	Payload     json.RawMessage `json:"payload"`
	Attempt     int             `json:"attempt"`
	Token       uint64          `json:"token"`
	ExpiresInMS int64           `json:"expires_in_ms"`
	text        string
}

type args = map[string]any

// ask calls a tool, which must succeed, and decodes the object of the answer.
func (g *agent) ask(tool string, a args, object any) (text string) {
	answer, err := g.Call(g.st.ctx, tool, a)
	g.st.must(err)
	if object != nil {
		g.st.must(json.Unmarshal(answer.Object, object))
	}
	return answer.Text
}

// rejected calls a tool, which must refuse with the code, and returns the text
// of the refusal.
func (g *agent) rejected(code, tool string, a args) (text string) {
	answer, err := g.Call(g.st.ctx, tool, a)
	var refusal *client.Refusal
	if !errors.As(err, &refusal) {
		g.st.must(err)
		g.st.want(false, "%s was not refused %s: %s", g.path, tool, answer.Text)
	}
	g.st.want(refusal.Code == code, "%s was refused %s with %s, want %s", g.path, tool, refusal.Code, code)
	return refusal.Text
}

// enqueue puts a task in the queue.
func (g *agent) enqueue(payload any, more args) (id string) {
	a := args{"queue": jobs, "payload": payload}
	maps.Copy(a, more)
	var made struct {
		ID string `json:"task_id"`
	}
	g.ask("task_enqueue", a, &made)
	return made.ID
}

// claim claims the tasks that are ready.
func (g *agent) claim(more args) []task {
	a := args{"queues": []string{jobs}, "ttl_secs": 60}
	maps.Copy(a, more)
	var got struct{ Tasks []task }
	text := g.ask("task_claim", a, &got)
	for i := range got.Tasks {
		got.Tasks[i].text = text
	}
	return got.Tasks
}

// claimOne claims one task, which must be ready or become ready while the call
// waits.
func (g *agent) claimOne(more args) task {
	got := g.claim(more)
	g.st.want(len(got) == 1, "%s was given %d tasks, want one", g.path, len(got))
	return got[0]
}

func (g *agent) submit(t task, result any) { g.ask("task_submit", completed(t, result), nil) }

func completed(t task, result any) args {
	return args{"task_id": t.ID, "token": t.Token, "status": "completed", "result": result}
}

// An outcome is the state of a task.
type outcome struct {
	State    string
	Result   json.RawMessage
	Attempts []struct{ Path, Cause string }
}

func (g *agent) see(id string) (o outcome) {
	g.ask("task_get", args{"task_id": id}, &o)
	return o
}

// counts are the numbers of tasks in the queue, by state.
type counts struct {
	Ready      int
	Delayed    int
	InProgress int `json:"in_progress"`
	Completed  int
	Failed     int
	Dead       int
	Cancelled  int
}

func (g *agent) counts() counts {
	var stats struct{ Queues []counts }
	g.ask("queue_stats", args{"queue": jobs}, &stats)
	g.st.want(len(stats.Queues) == 1, "%d queues are named %s", len(stats.Queues), jobs)
	return stats.Queues[0]
}

// A claimed is the result of a waiting claim.
type claimed struct {
	task
	at time.Time
}

// waitForTask claims a task in the background.
func (g *agent) waitForTask() <-chan claimed {
	c := make(chan claimed, 1)
	g.st.calls.Go(func() {
		defer close(c)
		_ = caught(func() { // no task: the agent is gone, or none became ready
			t := g.claimOne(args{"wait_secs": 50})
			c <- claimed{t, time.Now()}
		})
	})
	return c
}

// given waits for the result of waitForTask, which must be a task.
func (st *stage) given(who string, c <-chan claimed) claimed {
	t, ok := <-c
	st.want(ok, "%s waited, and was given no task", who)
	return t
}

// together runs do for several agents at once.
func (st *stage) together(agents []*agent, do func(i int, g *agent)) {
	ends := make(chan error)
	for i, g := range agents {
		st.calls.Go(func() { ends <- caught(func() { do(i, g) }) })
	}
	var errs []error
	for range agents {
		errs = append(errs, <-ends)
	}
	st.must(errors.Join(errs...))
}

// caught runs a part of a story, and returns an error if the story failed in
// it.
func caught(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}
