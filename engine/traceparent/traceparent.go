// Package traceparent reads and writes the text by which programs tell one
// another which trace they continue, as in the W3C's Trace Context.
//
// There it is two texts, traceparent and tracestate. Here it is one, so that it
// can be stored and passed on as a whole: the traceparent, and after a space the
// tracestate if there is one. [Join] and [Split] are for the edges.
package traceparent

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the header that has the traceparent, and of the field of
// a message; StateHeader is that of the tracestate.
const (
	Header      = "traceparent"
	StateHeader = "tracestate"
)

// maxState is the length of a tracestate that every program must pass on. Longer
// ones are dropped.
const maxState = 512

// Join returns the text of a traceparent and a tracestate, each of which may be
// empty.
func Join(parent, state string) string {
	switch {
	case strings.Contains(parent, " "):
		return "" // it is no traceparent
	case parent == "" || state == "" || len(state) > maxState:
		return parent
	}
	return parent + " " + state
}

// Split undoes Join.
func Split(text string) (parent, state string) {
	parent, state, _ = strings.Cut(text, " ")
	return parent, state
}

// With returns ctx with the span that the text names as its parent. If the text
// is not valid, it returns ctx itself.
func With(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	parent, state := Split(text)
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: parent, StateHeader: state})
}

// Of returns the text for the span of ctx, or "" without one.
func Of(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := make(propagation.MapCarrier, 2)
	propagation.TraceContext{}.Inject(ctx, carrier)
	return Join(carrier[Header], carrier[StateHeader])
}

// Valid reports whether a traceparent names a span.
func Valid(parent string) bool {
	ctx := context.Background()
	return !strings.Contains(parent, " ") && With(ctx, parent) != ctx
}
