package client

import (
	"context"
	"runtime"
	"sync"
)

// A combiner sends the requests of several goroutines together: what arrives
// during a request goes with the next one. If no other goroutine calls, a call
// is sent at once.
//
// A request costs the processors more than ten tasks do, so few large ones are
// better than many small ones. Beside a request that is not answered yet,
// another is sent only if it has as many items. So the callers divide into two
// groups: while the server works for one, the other prepares.
type combiner[R any] struct {
	c    *Client
	send func(ctx context.Context, list []item) ([]R, error)

	mu        sync.Mutex
	waiting   []*asked[R]
	gathering bool // a goroutine is about to take what waits
	requests  int  // sent and not answered
	underWay  int  // items in them
}

// An item is JSON that its caller has encoded, so that the callers do that side
// by side and a request of many items is only put together.
type item []byte

// tasksOf returns the body of a request of several items.
func tasksOf(list []item, gates []Gate) []byte {
	const head, between, tail = `{"tasks":[`, `],"require_leases":`, `]}`
	size := len(head) + len(tail) + len(list)
	for _, one := range list {
		size += len(one)
	}
	body := append(make([]byte, 0, size), head...)
	for i, one := range list {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, one...)
	}
	if len(gates) == 0 {
		return append(body, tail...)
	}
	return append(append(append(body, between...), encode(gates)...), '}')
}

// Bounds of a request.
const (
	maxTogether      = 100
	maxTogetherBytes = 2 << 20
	maxUnderWay      = 2 // one can be prepared while another is answered
)

type asked[R any] struct {
	what   item
	answer R
	err    error
	done   chan struct{}
	gone   bool // its caller no longer waits
}

func (b *combiner[R]) init(c *Client, send func(context.Context, []item) ([]R, error)) {
	b.c, b.send = c, send
}

// do sends one item and returns its answer. If ctx ends first, the item is not
// sent, or it is unknown whether it took effect.
func (b *combiner[R]) do(ctx context.Context, what item) (answer R, err error) {
	a := &asked[R]{what: what, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, a)
	if b.mayBeginLocked() {
		go b.run() // ends when too little waits for another request
	}
	b.mu.Unlock()
	select {
	case <-a.done:
		return a.answer, a.err
	case <-ctx.Done():
		b.mu.Lock()
		a.gone = true
		b.mu.Unlock()
		return answer, context.Cause(ctx)
	}
}

func (b *combiner[R]) run() {
	for again := true; again; {
		// The callers that were just answered run first: their next items go
		// with this request, and do not have to wait for its end.
		runtime.Gosched()
		list := b.take()
		if len(list) > 0 {
			b.sendAll(list)
		}
		for _, a := range list {
			close(a.done)
		}
		again = b.answered(list)
	}
}

// mayBeginLocked reports whether another request may be sent. If so, the caller
// must call take.
func (b *combiner[R]) mayBeginLocked() bool {
	if b.gathering || b.requests == maxUnderWay || len(b.waiting) < max(1, min(b.underWay, maxTogether)) {
		return false
	}
	b.gathering = true
	return true
}

// take returns what goes with the next request.
func (b *combiner[R]) take() (list []*asked[R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size, n := 0, 0
	for _, a := range b.waiting {
		if len(list) == maxTogether || len(list) > 0 && size+len(a.what) > maxTogetherBytes {
			break
		}
		n++
		if !a.gone {
			size += len(a.what)
			list = append(list, a)
		}
	}
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	b.gathering = false
	b.requests++
	b.underWay += len(list)
	return list
}

// answered ends a request, and reports whether its goroutine must send another.
func (b *combiner[R]) answered(list []*asked[R]) (again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests--
	b.underWay -= len(list)
	return b.mayBeginLocked()
}

// sendAll sends a request. If a request of several items is refused, each item
// is sent alone, so that none is refused because of another.
func (b *combiner[R]) sendAll(list []*asked[R]) {
	items := make([]item, len(list))
	for i, a := range list {
		items[i] = a.what
	}
	answers, err := b.send(b.c.ctx, items)
	switch {
	case err == nil:
		for i, a := range list {
			a.answer = answers[i]
		}
	case len(list) > 1 && !retriable(err):
		for i := range list {
			b.sendAll(list[i : i+1])
		}
	default:
		for _, a := range list {
			a.err = err
		}
	}
}
