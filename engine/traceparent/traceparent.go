// Package traceparent reads and writes the text by which programs tell one
// another which trace they continue: traceparent, as in the W3C's Trace
// Context.
package traceparent

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Header is the name of the header that has the text, and of the field of a
// message.
const Header = "traceparent"

// With returns ctx with the span that the text names as its parent. If the text
// is not valid, it returns ctx itself.
func With(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: text})
}

// Of returns the text for the span of ctx, or "" without one.
func Of(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := make(propagation.MapCarrier, 1)
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Valid reports whether a text names a span.
func Valid(text string) bool {
	ctx := context.Background()
	return With(ctx, text) != ctx
}
