package cluster

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// A Term is one registration of this server, for those who answer in its name.
type Term struct {
	ID    uuid.UUID
	clock func() time.Duration

	mu      sync.Mutex
	until   time.Duration // by the running clock: it may answer before that
	over    bool
	changed chan struct{} // closed by the next change
}

func newTerm(clock func() time.Duration) *Term {
	return &Term{ID: uuid.New(), clock: clock, changed: make(chan struct{})}
}

// Confirm returns nil if this server still led at some instant since it was called.
// If that is not certain it waits until it is, and answers [ErrOver] if it does not
// lead any more.
func (t *Term) Confirm() error {
	for {
		t.mu.Lock()
		over, sure, changed := t.over, t.clock() < t.until, t.changed
		t.mu.Unlock()
		switch {
		case over:
			return ErrOver
		case sure:
			return nil
		}
		<-changed // by a beat, or by the end, which comes
	}
}

// extend notes a beat that succeeded.
func (t *Term) extend(until time.Duration) { t.change(func() { t.until = until }) }

// end makes Confirm fail.
func (t *Term) end() { t.change(func() { t.over = true }) }

func (t *Term) change(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
	close(t.changed)
	t.changed = make(chan struct{})
}
