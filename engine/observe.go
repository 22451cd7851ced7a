package engine

import (
	"slices"
	"strings"
	"time"
)

// An Observer is notified of what an engine does, for metrics and logs. Rows
// that do not change cost nothing.
type Observer struct {
	// Changed is called for each change of a row under one of the prefixes,
	// with the row before and after; one of them may be the zero Row. For cold
	// rows it is called only when they are written, and only is is set. When
	// the engine is opened, it is called for all existing rows except cold
	// ones.
	//
	// It is called in the order of the transactions, before they are durable,
	// while others wait for the engine. So it must be fast, must not wait, and
	// must not use the engine.
	Changed  func(was, is Row)
	Prefixes []string

	// Committed is called with the time that each writing Update took until it
	// was durable. It may be called from any goroutine.
	Committed func(took time.Duration)
}

// Watched reports whether the observer is notified of changes of a key's row.
func (o *Observer) Watched(key string) bool {
	return slices.ContainsFunc(o.Prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}
