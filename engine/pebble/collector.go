package pebble

import (
	"runtime/debug"
	"sync"
	"time"
)

// collector lets the garbage collector rest while a large state is opened, and
// until the first Revise or transaction after that. All that is read stays, and is twice what there was again
// and again: a collector that follows takes as long as the reading does. A memory
// limit still holds.
var collector struct {
	mu      sync.Mutex
	resting int // how many want it to
	percent int // what it is to go on with
}

const (
	// largeState is the size of a store, in bytes, from where on that is worth it.
	largeState = 16 << 20
	// longRest is for a state that nobody uses once it is open.
	longRest = time.Second
)

func restCollector() (wake func()) {
	collector.mu.Lock()
	defer collector.mu.Unlock()
	if collector.resting++; collector.resting == 1 {
		collector.percent = debug.SetGCPercent(-1)
	}
	return sync.OnceFunc(func() {
		collector.mu.Lock()
		defer collector.mu.Unlock()
		if collector.resting--; collector.resting == 0 {
			debug.SetGCPercent(collector.percent)
		}
	})
}
