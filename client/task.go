package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/leasehold/leasehold/engine/jsontext"
	"github.com/leasehold/leasehold/engine/traceparent"
)

// A NewTask is a task to enqueue.
type NewTask struct {
	Queue       string
	Payload     any           // anything with JSON; at most 1 MiB
	Priority    int           // 0 to 9, 9 first
	Delay       time.Duration // ready only after this
	MaxAttempts int           // executions before it is dead; 0: 5
	Key         string        // idempotency key: a second enqueue with it returns the same task
	Gates       []Gate        // of leases that must be held, from [Lease.Gate]
}

// enqueuing is a NewTask in the form of the API, without its payload. That is
// JSON already and can be large, so it is only appended.
type enqueuing struct {
	Queue       string  `json:"queue"`
	Priority    int     `json:"priority,omitempty"`
	DelaySecs   float64 `json:"delay_secs,omitempty"`
	MaxAttempts int     `json:"max_attempts,omitempty"`
	Key         string  `json:"idempotency_key,omitempty"`
	traced
}

// A traced is the trace context of a task.
type traced struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
}

// traceOf returns the trace context for the span of ctx.
func traceOf(ctx context.Context) (t traced) {
	t.Parent, t.State = traceparent.Split(traceparent.Of(ctx))
	return t
}

// Enqueue adds a task to a queue and returns its id. The task is then durable.
// Calls of several goroutines are sent together. The task carries the context
// of ctx's OpenTelemetry span to its handler.
func (c *Client) Enqueue(ctx context.Context, t NewTask) (id string, err error) {
	payload, ready := t.Payload.(json.RawMessage)
	switch {
	case !ready || payload == nil:
		if payload, err = argument("payload", t.Payload); err != nil {
			return "", fmt.Errorf("the payload: %w", err)
		}
	case !json.Valid(payload):
		return "", errors.New("the payload: it is not JSON")
	}
	e, err := arguments(enqueuing{
		Queue: t.Queue, Priority: t.Priority, DelaySecs: t.Delay.Seconds(),
		MaxAttempts: t.MaxAttempts, Key: t.Key, traced: traceOf(ctx),
	})
	if err != nil {
		return "", err
	}
	e = append(append(append(e[:len(e)-1], `,"payload":`...), payload...), '}')
	if len(t.Gates) == 0 {
		return c.enqueues.do(ctx, e)
	}
	ids, err := c.enqueueGated(ctx, []item{e}, t.Gates)
	if err != nil {
		return "", err
	}
	return ids[0], nil
}

func (c *Client) enqueueAll(ctx context.Context, list []item) ([]string, error) {
	return c.enqueueGated(ctx, list, nil)
}

func (c *Client) enqueueGated(ctx context.Context, list []item, gates []Gate) ([]string, error) {
	var made struct {
		Tasks []struct {
			TaskID string `json:"task_id"`
		}
	}
	err := c.do(ctx, &request{method: http.MethodPost, path: "/tasks/many", body: tasksOf(list, gates)}, &made)
	if err != nil {
		return nil, err
	}
	if len(made.Tasks) != len(list) {
		return nil, fmt.Errorf("%d tasks were enqueued, and %d answered", len(list), len(made.Tasks))
	}
	ids := make([]string, len(list))
	for i := range made.Tasks {
		ids[i] = made.Tasks[i].TaskID
	}
	return ids, nil
}

// An Outcome is how a task ended.
type Outcome struct {
	State  string          // completed, failed, dead or cancelled
	Result json.RawMessage // of a completed task
	Error  json.RawMessage // of a failed task
}

// Wait waits until a task has finished.
func (c *Client) Wait(ctx context.Context, id string) (o Outcome, err error) {
	path := fmt.Sprintf("/tasks/%s/result?wait_secs=%d", url.PathEscape(id), int(maxWait.Seconds()))
	for {
		o = Outcome{}
		err := c.do(ctx, &request{method: http.MethodGet, path: path, wait: maxWait}, &o)
		if err != nil {
			return Outcome{}, err
		}
		switch o.State {
		case "completed", "failed", "dead", "cancelled":
			return o, nil
		}
		if ctx.Err() != nil {
			return Outcome{}, context.Cause(ctx)
		}
	}
}

// arguments returns the JSON of what a caller says. Text that JSON cannot have is refused
// as the server refuses it.
func arguments(v any) ([]byte, error) { return argument("", v) }

// argument is arguments for the value of one of them.
func argument(name string, v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(b, []byte(`\ufffd`)) { // which Marshal writes for such text, and not for U+FFFD
		return b, nil
	}
	if in, found := jsontext.NotUTF8(v); found {
		name = cmp.Or(in, name)
		e := &Error{Status: http.StatusBadRequest, Code: "INVALID_ARGUMENT", Message: name + " must be valid UTF-8"}
		e.Object = encode(map[string]string{"argument": name, "code": e.Code, "message": e.Message})
		return nil, e
	}
	return b, nil
}

// encode returns the JSON of a value that the client has built itself.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("client: what it sends is plain data: " + err.Error())
	}
	return b
}

// decode reads a server's answer; members that it lacks are left unchanged.
func decode(b []byte, v any) { _ = json.Unmarshal(b, v) }
