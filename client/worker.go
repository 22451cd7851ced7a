package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/engine/traceparent"
)

// A Worker takes tasks and executes them.
type Worker struct {
	Queues      []string
	Concurrency int           // how many tasks at once; 0: 1
	TTL         time.Duration // how long a claim lasts without a renewal; 0: 30 s
	Drain       time.Duration // how long handlers may continue after the worker stops; 0: 10 s

	// Handle executes a task. Its context ends when the claim is lost, or may
	// be, and when Drain is over after the worker stopped. If the task carries
	// a trace, the context has its remote parent, so spans started from it
	// belong to that trace. The result becomes the task's result. After an
	// error the task is tried again, or it fails if the error is [Final] or the
	// server does not accept the result, for instance because it is too large.
	// After a panic the task is tried again, and the panic continues.
	Handle func(ctx context.Context, t *Task) (result any, err error)

	// Jeopardy is called when a heartbeat fails, with the time until the
	// context of the task's handler ends.
	Jeopardy func(t *Task, left time.Duration, err error)
}

const defaultDrain = 10 * time.Second

// A Task is a task that the worker has claimed.
type Task struct {
	ID          string          `json:"task_id"`
	Queue       string          `json:"queue"`
	Payload     json.RawMessage `json:"payload"`
	Attempt     int             `json:"attempt"` // 1 for the first
	MaxAttempts int             `json:"max_attempts"`
	Token       uint64          `json:"token"`       // the fencing token of the claim
	Traceparent string          `json:"traceparent"` // W3C trace context of the claim; "" if the task is not traced
	Tracestate  string          `json:"tracestate"`  // what belongs to it
}

// Final marks an error that another attempt would not avoid, so that the task
// fails. If err is nil, so is the result.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// A shift is one call of Work.
type shift struct {
	*Client
	Worker
	free     chan struct{} // has one element for each task that may be taken
	handlers sync.WaitGroup
	over     context.Context // ends when handlers must stop
}

// Work executes tasks until ctx ends. Then it takes no more, and lets the
// handlers finish; it returns when all have. It returns an error only if it is
// not allowed to claim.
func (c *Client) Work(ctx context.Context, w Worker) error {
	if w.Concurrency == 0 {
		w.Concurrency = 1
	}
	if w.TTL == 0 {
		w.TTL = defaultTTL
	}
	if w.Drain == 0 {
		w.Drain = defaultDrain
	}
	over, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	s := &shift{Client: c, Worker: w, free: make(chan struct{}, w.Concurrency), over: over}
	for range w.Concurrency {
		s.free <- struct{}{}
	}
	err := s.claimAll(ctx)
	drain := time.AfterFunc(w.Drain, func() { end(ErrDraining) })
	defer drain.Stop()
	s.handlers.Wait()
	return err
}

// claimAll claims as many tasks as there are free places, until ctx ends.
func (s *shift) claimAll(ctx context.Context) error {
	for failures := 0; ; {
		n := s.room(ctx)
		if n == 0 {
			return nil
		}
		s.expect(n)
		sent := s.clock.Running()
		tasks, session, err := s.claim(ctx, n)
		s.expect(len(tasks) - n)
		for range n - len(tasks) {
			s.free <- struct{}{}
		}
		for i := range tasks {
			s.handlers.Go(func() { s.execute(ctx, &tasks[i], session, sent) })
		}
		switch refusal, ok := errors.AsType[*Error](err); {
		case err == nil:
			failures = 0
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrClosed), ok && refusal.Status < 500 && refusal.Status != http.StatusTooManyRequests:
			return err
		}
		s.log.Warn("no tasks can be claimed", "err", err)
		if pause(ctx, failures) != nil {
			return nil
		}
		failures++
	}
}

// room waits for a free place, and returns how many are free, or 0 if ctx has
// ended.
func (s *shift) room(ctx context.Context) (n int) {
	select {
	case <-s.free:
	case <-ctx.Done():
		return 0
	}
	for n = 1; n < maxTogether; n++ {
		select {
		case <-s.free:
		default:
			return n
		}
	}
	return n
}

func (s *shift) claim(ctx context.Context, n int) (tasks []Task, session string, err error) {
	in := map[string]any{"queues": s.Queues, "ttl_secs": s.TTL.Seconds(), "wait_secs": maxWait.Seconds(), "count": n}
	body, err := arguments(in)
	if err != nil {
		return nil, "", err
	}
	var got struct{ Tasks []Task }
	asked := request{method: http.MethodPost, path: "/tasks/next", body: body, wait: maxWait}
	err = s.do(ctx, &asked, &got)
	return got.Tasks, asked.session, err
}

// execute calls the handler for a task and ends the task. Its place is free as
// soon as the handler has returned: the outcome is sent with those of other
// tasks, while the next ones are claimed.
func (s *shift) execute(ctx context.Context, t *Task, session string, sent time.Duration) {
	h := &hold{
		c: s.Client, what: "task " + t.ID, token: t.Token, session: session, ttl: s.TTL,
		renew: func(ctx context.Context, timeout time.Duration) error {
			return s.tryIn(ctx, s.taskRequest(t, "heartbeat", map[string]any{"token": t.Token, "ttl_secs": s.TTL.Seconds()}), timeout, session)
		},
	}
	if s.Jeopardy != nil {
		h.jeopardy = func(left time.Duration, err error) { s.Jeopardy(t, left, err) }
	}
	err := h.begin(traceparent.With(context.WithoutCancel(ctx), traceparent.Join(t.Traceparent, t.Tracestate)), sent, nil)
	s.expect(-1)
	if err != nil {
		s.free <- struct{}{}
		return // the claim is already lost
	}
	result, err := s.handle(t, h)
	s.free <- struct{}{}
	s.finish(t, h, result, err)
}

// handle calls the handler. If that does not return, nor does handle: it gives the
// task and its place back. After runtime.Goexit, which t.FailNow calls, Work goes on.
func (s *shift) handle(t *Task, h *hold) (result any, err error) {
	ctx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.over, func() { cancel(context.Cause(s.over)) })()
	returned := false
	defer func() {
		if !returned {
			s.finish(t, h, nil, errors.New("the handler panicked or ended its goroutine"))
			s.free <- struct{}{}
		}
	}()
	result, err = s.Handle(ctx, t)
	returned = true
	return result, err
}

// finish sends the outcome of a handler to the server. The claim is renewed
// until that is answered.
func (s *shift) finish(t *Task, h *hold, result any, failure error) {
	defer h.lose(ErrReleased)
	ctx, cancel := context.WithTimeout(h.ctx, s.opts.Outage) // if the claim is lost, there is nothing to send
	defer cancel()
	var err error
	encoded, wrong := argument("result", result)
	if failure == nil && wrong != nil {
		failure = Final(fmt.Errorf("the result: %w", wrong))
	}
	var final *finalError
	switch {
	case failure == nil:
		err = s.submit(ctx, submission{TaskID: t.ID, Token: t.Token, Status: "completed", Result: encoded, traced: traced{t.Traceparent, t.Tracestate}})
		if refusal, ok := errors.AsType[*Error](err); ok && refusal.unfit() {
			err = s.fail(ctx, t, fmt.Errorf("the result: %w", refusal))
		}
	case errors.As(failure, &final):
		err = s.fail(ctx, t, failure)
	case s.over.Err() != nil:
		err = s.do(ctx, s.taskRequest(t, "abandon", map[string]any{"token": t.Token}), nil)
	default:
		err = s.do(ctx, s.taskRequest(t, "nack", map[string]any{"token": t.Token, "reason": shortened(failure.Error(), maxReason)}), nil)
	}
	if err != nil {
		s.log.Warn("the end of a task was not told", "task", t.ID, "err", err)
	}
}

// fail submits that a task has failed, so that it is not tried again.
func (s *shift) fail(ctx context.Context, t *Task, failure error) error {
	text := encode(shortened(failure.Error(), maxError))
	return s.submit(ctx, submission{TaskID: t.ID, Token: t.Token, Status: "failed", Error: text, traced: traced{t.Traceparent, t.Tracestate}})
}

const (
	maxReason = 512
	maxError  = 64 << 10 // as JSON it is below the limit of a result
)

// shortened cuts text to at most so many bytes.
func shortened(text string, most int) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

func (s *shift) taskRequest(t *Task, what string, in any) *request {
	return &request{method: http.MethodPost, path: "/tasks/" + url.PathEscape(t.ID) + "/" + what, body: encode(in), insists: true}
}

// A submission is the end of a task in the form of the API.
type submission struct {
	TaskID string          `json:"task_id"`
	Token  uint64          `json:"token"`
	Status string          `json:"status"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
	traced
}

// submitted is the answer to a submission.
type submitted struct {
	TaskID  string `json:"task_id"`
	Refusal json.RawMessage
}

func (c *Client) submit(ctx context.Context, s submission) error {
	answer, err := c.submits.do(ctx, encode(s))
	if err == nil && len(answer.Refusal) > 0 {
		err = errorOf(http.StatusGone, answer.Refusal)
	}
	return err
}

func (c *Client) submitAll(ctx context.Context, list []item) ([]submitted, error) {
	var done struct{ Tasks []submitted }
	if err := c.do(ctx, &request{method: http.MethodPost, path: "/tasks/submit", body: tasksOf(list, nil), insists: true}, &done); err != nil {
		return nil, err
	}
	if len(done.Tasks) != len(list) {
		return nil, fmt.Errorf("%d tasks were submitted, and %d answered", len(list), len(done.Tasks))
	}
	return done.Tasks, nil
}
