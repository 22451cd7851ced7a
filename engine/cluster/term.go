package cluster

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// A Term is one registration of this server. Answers are given under it.
type Term struct {
	ID    uuid.UUID
	clock func() time.Duration

	mu      sync.Mutex
	until   time.Duration // by the running clock: the server may answer before this
	over    bool
	changed chan struct{} // closed at the next change
}

func newTerm(clock func() time.Duration) *Term {
	return &Term{ID: uuid.New(), clock: clock, changed: make(chan struct{})}
}

// Confirm returns nil if this server led at some instant since Confirm was
// called. If that is uncertain, it waits. It returns [ErrOver] if the server no
// longer leads.
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
		<-changed // by a beat, or at the latest by the end of the term
	}
}

// sure reports whether the server may answer without waiting.
func (t *Term) sure() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.over && t.clock() < t.until
}

// extend is called after a successful beat.
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
