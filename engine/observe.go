package engine

import "time"

// An Observer is told what an engine does, for metrics and logs. It costs nothing for
// what does not change.
type Observer struct {
	// Changed is told of each change of a row under one of the prefixes: what it was
	// and what it is, of which one may be the zero Row. Of cold rows it is told only
	// those that are written, and what they are. At first it is told of all rows
	// there are, cold ones aside.
	//
	// It is called in the order of the transactions, before they are durable, while
	// everybody waits: it must be quick, wait for nothing and not use the engine.
	Changed  func(was, is Row)
	Prefixes []string

	// Committed is told how long an Update took that wrote, until it was durable. It
	// may be called from any goroutine.
	Committed func(took time.Duration)
}

// Watched reports whether the observer is told of a key's row.
func (o *Observer) Watched(key string) bool {
	for _, prefix := range o.Prefixes {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix {
			return true
		}
	}
	return false
}
