// Package traceparent reads and writes the text by which programs tell one another
// which trace they go on with: traceparent, as the W3C's Trace Context has it.
package traceparent

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
)

// Header is the name of the header, and of the field of a message, that has it.
const Header = "traceparent"

// With is ctx with the span that the text names as its parent. A text that is none
// leaves ctx as it is.
func With(ctx context.Context, text string) context.Context {
	if text == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: text})
}

// Of is the text for the span of ctx; "" without one.
func Of(ctx context.Context) string {
	carrier := make(propagation.MapCarrier, 1)
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Valid reports whether a text names a span.
func Valid(text string) bool {
	ctx := context.Background()
	return With(ctx, text) != ctx
}
