package launcher

import (
	"fmt"
	"sync"
	"time"
)

// event records an event and passes it to the teller.
func (l *Launcher) event(e Event) {
	e.Run = l.run
	l.teller.event(l.opts.Directory, e)
}

// A teller passes events to Options.Events one at a time, in the order in which
// they were recorded. The function may block, as a terminal does after Ctrl-S,
// or a pager. The run must go on, so events wait in a queue.
type teller struct {
	tell func(Event) // may be nil

	mu     sync.Mutex
	queue  []Event
	more   chan struct{} // contains an element when the queue may have events
	closed chan struct{}
	done   chan struct{}
}

func newTeller(tell func(Event)) *teller {
	t := &teller{tell: tell, more: make(chan struct{}, 1), closed: make(chan struct{}), done: make(chan struct{})}
	go t.run() // ends with close
	return t
}

func (t *teller) event(d *Directory, e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	if err := d.record(e); err != nil {
		e.Text += fmt.Sprintf(" (not recorded: %v)", err)
	}
	if t.tell == nil {
		return
	}
	t.queue = append(t.queue, e)
	select {
	case t.more <- struct{}{}:
	default:
	}
}

func (t *teller) run() {
	defer close(t.done)
	for last := false; !last; {
		select {
		case <-t.more:
		case <-t.closed:
			last = true
		}
		t.mu.Lock()
		events := t.queue
		t.queue = nil
		t.mu.Unlock()
		for _, e := range events {
			t.tell(e)
		}
	}
}

// close returns when all events were passed on, or at an interrupt.
func (t *teller) close(interrupts <-chan struct{}) {
	close(t.closed)
	select {
	case <-t.done:
	case <-interrupts:
	}
}
