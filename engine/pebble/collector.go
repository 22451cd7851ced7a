package pebble

import (
	"runtime/debug"
	"sync"
)

// collector lets the garbage collector rest while a large state is opened. All
// that is read stays, and is twice what there was again and again: a collector
// that follows takes as long as the reading does. A memory limit still holds.
var collector struct {
	mu      sync.Mutex
	resting int // how many want it to
	percent int // what it is to go on with
}

// largeState is the size of a store, in bytes, from where on that is worth it.
const largeState = 16 << 20

func restCollector() (wake func()) {
	collector.mu.Lock()
	defer collector.mu.Unlock()
	if collector.resting++; collector.resting == 1 {
		collector.percent = debug.SetGCPercent(-1)
	}
	return func() {
		collector.mu.Lock()
		defer collector.mu.Unlock()
		if collector.resting--; collector.resting == 0 {
			debug.SetGCPercent(collector.percent)
		}
	}
}
