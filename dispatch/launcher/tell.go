package launcher

import (
	"fmt"
	"sync"
	"time"
)

// event records an event and tells it.
func (l *Launcher) event(e Event) {
	e.Run = l.run
	l.teller.event(l.opts.Directory, e)
}

// A teller tells of events one at a time, in the order of the record. Whoever
// is told may stand still, as a terminal does after Ctrl-S or a pager that
// nobody scrolls. The run goes on, so an event waits for its turn in a queue.
type teller struct {
	tell func(Event) // nil: nobody is told

	mu     sync.Mutex
	queue  []Event
	more   chan struct{} // has something when the queue may have
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

// close returns when all has been told, or at an interrupt.
func (t *teller) close(interrupts <-chan struct{}) {
	close(t.closed)
	select {
	case <-t.done:
	case <-interrupts:
	}
}
