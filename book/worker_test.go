package book

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// ANCHOR: worker
const ttl = time.Minute

// A task is what task_claim tells of one.
type task struct {
	ID      string          `json:"task_id"`
	Token   uint64          `json:"token"`
	Attempt int             `json:"attempt"`
	Payload json.RawMessage `json:"payload"`
}

var errLost = errors.New("the claim is lost: another worker may be at it")

// work executes the tasks of a queue one by one, until ctx ends.
func work(ctx context.Context, agent *mcp.ClientSession, queue string, execute func(context.Context, task) (any, error)) error {
	for {
		var got struct{ Tasks []task }
		err := call(ctx, agent, "task_claim", args{
			"queues": []string{queue}, "ttl_secs": ttl.Seconds(), "wait_secs": 50, "request_id": uuid.NewString(),
		}, &got)
		if err != nil {
			return err
		}
		for _, t := range got.Tasks {
			if err := do(ctx, agent, t, execute); err != nil && !errors.Is(err, errLost) {
				return err
			}
		}
	}
}

// do executes a task, and ends it or gives it back.
func do(ctx context.Context, agent *mcp.ClientSession, t task, execute func(context.Context, task) (any, error)) error {
	mine, stop := keep(ctx, agent, t)
	result, failure := execute(mine, t)
	stop()
	switch {
	case errors.Is(context.Cause(mine), errLost):
		return errLost
	case failure != nil:
		return call(ctx, agent, "task_nack", args{"task_id": t.ID, "token": t.Token, "reason": failure.Error()}, nil)
	default:
		return call(ctx, agent, "task_submit", args{"task_id": t.ID, "token": t.Token, "status": "completed", "result": result}, nil)
	}
}

// keep extends the claim until stop is called. The context that it returns ends
// as soon as the claim is lost, or may be.
func keep(ctx context.Context, agent *mcp.ClientSession, t task) (mine context.Context, stop func()) {
	mine, lose := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(ttl, func() { lose(errLost) })
	beat := func() {
		sent := time.Now()
		err := call(mine, agent, "task_heartbeat", args{"task_id": t.ID, "token": t.Token, "ttl_secs": ttl.Seconds()}, nil)
		switch {
		case err == nil:
			expiry.Reset(ttl - time.Since(sent))
		case errors.Is(err, errLost):
			lose(errLost)
		} // else it is tried again, for as long as the claim lasts
	}
	beat() // the answer to the claim may have been long on its way
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				beat()
			case <-mine.Done():
				return
			}
		}
	}()
	return mine, func() {
		lose(nil)
		<-ended
		expiry.Stop()
	}
}

// call calls a tool, and reads the object of its answer.
func call(ctx context.Context, agent *mcp.ClientSession, tool string, a args, answer any) error {
	result, err := agent.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		return err
	}
	object, err := json.Marshal(result.StructuredContent)
	if err != nil {
		return err
	}
	if result.IsError {
		var refusal struct{ Code, Message string }
		if err := json.Unmarshal(object, &refusal); err != nil {
			return err
		}
		if refusal.Code == "STALE_TOKEN" {
			return errLost
		}
		return fmt.Errorf("%s: %s", tool, refusal.Message)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(object, answer)
}

// ANCHOR_END: worker

// connectSDK opens a session for a worker of the lead, as the official Go SDK's
// client.
func (d *daemon) connectSDK(name string) *mcp.ClientSession {
	d.t.Helper()
	_, token, err := d.state.AddActor(d.ctx, dispatch.NewActor{Run: "book", Name: name, Role: dispatch.Worker})
	if err != nil {
		d.t.Fatal(err)
	}
	nc, _ := d.Dial(d.ctx)
	br, _, err := server.Greet(nc, server.Hello{Token: token})
	if err != nil {
		d.t.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: name, Version: "book"}, nil)
	session, err := client.Connect(d.ctx, &mcp.IOTransport{Reader: io.NopCloser(br), Writer: nc}, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return session
}

// The worker of the book keeps a task that takes five times its ttl, has one
// tried again that failed, drops one that was taken from it, and goes on.
func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t)
		defer d.stop()
		lead := d.actor(dispatch.NewActor{Name: "lead", Role: dispatch.Root})
		defer lead.Close()
		agent := d.connectSDK("W1")
		defer agent.Close()
		ids := make(map[string]string)
		for _, payload := range []string{"quick", "long", "flaky", "unwanted"} {
			r := d.call(lead, "task_enqueue", args{"queue": "jobs", "payload": payload})
			ids[payload] = r.taskID(t)
		}

		var log []string
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- work(ctx, agent, "jobs", func(ctx context.Context, task task) (any, error) {
				log = append(log, fmt.Sprintf("%s %d", task.Payload, task.Attempt))
				switch {
				case string(task.Payload) == `"long"`:
					time.Sleep(5 * ttl)
				case string(task.Payload) == `"flaky"` && task.Attempt == 1:
					return nil, errors.New("no network")
				case string(task.Payload) == `"unwanted"`:
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return "done", ctx.Err()
			})
		}()
		time.Sleep(6 * ttl)
		d.call(lead, "task_cancel", args{"task_id": ids["unwanted"]})
		time.Sleep(ttl)
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("work ended with %v", err)
		}
		if want := []string{`"quick" 1`, `"long" 1`, `"flaky" 1`, `"unwanted" 1`, `"flaky" 2`}; !slices.Equal(log, want) {
			t.Errorf("executed %v, want %v", log, want)
		}
		for payload, id := range ids {
			want := `"state":"completed"`
			if payload == "unwanted" {
				want = `"state":"cancelled"`
			}
			if r := d.call(lead, "task_result", args{"task_id": id}); !strings.Contains(string(r.object), want) {
				t.Errorf("%s: %s, want %s", payload, r.object, want)
			}
		}
	})
}

func (r reply) taskID(t *testing.T) string {
	t.Helper()
	var made struct {
		ID string `json:"task_id"`
	}
	if err := json.Unmarshal(r.object, &made); err != nil || made.ID == "" {
		t.Fatalf("no task_id in %s", r.object)
	}
	return made.ID
}
