// Package traces makes OpenTelemetry spans of what happens to tasks, so that
// one trace leads from the program that enqueues a task to the worker that
// executes it.
//
//	the enqueuer's span
//	└─ enqueue Q            until the task is durable; its context is in the task's record
//	   ├─ wait Q            until the claim, once for each attempt
//	   └─ claim Q           until the answer; its context is given to the worker
//	      ├─ …              the worker's own spans
//	      └─ submit Q       or nack, or abandon
//
// A daemon that exports no spans makes none. It passes the enqueuer's context
// on to the worker.
package traces

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasehold/leasehold/engine/traceparent"
	"github.com/leasehold/leasehold/queue"
)

// A Tracer makes the spans. The zero value makes none and passes contexts on
// unchanged.
type Tracer struct{ spans trace.Tracer }

// New returns a Tracer that makes its spans with a provider.
func New(p trace.TracerProvider) Tracer {
	return Tracer{p.Tracer("github.com/leasehold/leasehold")}
}

// Enqueuing begins the spans of tasks that are about to be enqueued, and gives
// each task the context of its span. The parent of a span is its task's Trace,
// or otherwise the span of ctx. The caller ends the spans with done, and passes
// it the created tasks in the same order.
func (t Tracer) Enqueuing(ctx context.Context, list []queue.NewTask) (done func([]queue.Task, error)) {
	if t.spans == nil {
		if from := traceparent.Of(ctx); from != "" {
			for i := range list {
				if list[i].Trace == "" {
					list[i].Trace = from
				}
			}
		}
		return func([]queue.Task, error) {}
	}
	begun := make([]trace.Span, len(list))
	for i := range list {
		n := &list[i]
		within, span := t.spans.Start(traceparent.With(ctx, n.Trace), "enqueue "+n.Queue,
			trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(operation("send", n.Queue)...))
		n.Trace, begun[i] = traceparent.Of(within), span
	}
	return func(made []queue.Task, err error) {
		for i, span := range begun {
			if err == nil {
				span.SetAttributes(taskID(&made[i]))
			}
			end(span, err)
		}
	}
}

// Claimed makes the spans of tasks that a call has claimed, and gives each task
// the context of its claim. The claims are linked to the span of ctx, which is
// that of the call.
func (t Tracer) Claimed(ctx context.Context, list []queue.Claimed) {
	if t.spans == nil {
		return
	}
	asked := trace.LinkFromContext(ctx)
	for i := range list {
		c := &list[i]
		n := len(c.Attempts)
		if c.Trace == "" || n == 0 {
			continue
		}
		began, since := c.Attempts[n-1].BeganAt, c.EnqueuedAt
		if n > 1 {
			since = c.Attempts[n-2].EndedAt
		}
		from := traceparent.With(ctx, c.Trace)
		about := append(operation("receive", c.Queue), taskID(&c.Task), attribute.Int("leasehold.task.attempt", c.Attempt))
		_, waited := t.spans.Start(from, "wait "+c.Queue, trace.WithTimestamp(since), trace.WithAttributes(about...))
		waited.End(trace.WithTimestamp(began))
		options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(began), trace.WithAttributes(about...)}
		if asked.SpanContext.IsValid() {
			options = append(options, trace.WithLinks(asked))
		}
		within, span := t.spans.Start(from, "claim "+c.Queue, options...)
		span.End()
		c.Trace = traceparent.Of(within)
	}
}

// Ending notes when the end of a claim was requested, by a submit, nack or
// abandon; done makes the span. Its parent is from, or otherwise the span of
// ctx, or otherwise the task's.
func (t Tracer) Ending(ctx context.Context, what string) (done func(from string, task *queue.Task, err error)) {
	if t.spans == nil {
		return func(string, *queue.Task, error) {}
	}
	began := time.Now()
	return func(from string, task *queue.Task, err error) {
		parent := traceparent.With(ctx, from)
		if !trace.SpanContextFromContext(parent).IsValid() {
			parent = traceparent.With(ctx, task.Trace)
		}
		if !trace.SpanContextFromContext(parent).IsValid() {
			return // nobody traces the task
		}
		options := []trace.SpanStartOption{trace.WithTimestamp(began)}
		name := what
		if task.Queue != "" {
			name += " " + task.Queue
			options = append(options, trace.WithAttributes(append(operation("settle", task.Queue), taskID(task), attribute.String("leasehold.task.state", task.State.String()))...))
		}
		_, span := t.spans.Start(parent, name, options...)
		end(span, err)
	}
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// operation returns the attributes for an operation on a queue by
// OpenTelemetry's conventions for messaging.
func operation(kind, queue string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "leasehold"),
		attribute.String("messaging.operation.type", kind),
		attribute.String("messaging.destination.name", queue),
	}
}

func taskID(t *queue.Task) attribute.KeyValue {
	return attribute.String("messaging.message.id", t.ID.String())
}
