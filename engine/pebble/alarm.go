package pebble

import "sync"

// An alarm rings for those in WaitDue when what they sleep for has changed.
type alarm struct {
	mu   sync.Mutex
	rung chan struct{} // closed when it rings; nil when nobody waits
	due  int64         // what the last to arm it sleeps for
}

// arm gives a channel that is closed when a due time before due appears. One
// who armed it earlier, for an earlier time, has a timer of his own for that.
func (a *alarm) arm(due int64) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung == nil {
		a.rung = make(chan struct{})
	}
	a.due = due
	return a.rung
}

// set rings if due is earlier than what those who wait know of.
func (a *alarm) set(due int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rung != nil && due < a.due {
		a.ringLocked()
	}
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ringLocked()
}

func (a *alarm) ringLocked() {
	if a.rung != nil {
		close(a.rung)
		a.rung = nil
	}
}
