package client

import (
	"context"
	"runtime"
	"sync"
)

// A combiner sends the requests of several goroutines together: what arrives
// during a request goes with the next one. If no other goroutine calls, a call
// is sent at once.
type combiner[R any] struct {
	c    *Client
	send func(ctx context.Context, list []item) ([]R, error)

	mu      sync.Mutex
	waiting []*asked[R]
	sending int
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
	if b.sending < maxUnderWay {
		b.sending++
		go b.run() // ends when nothing is waiting
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
	for {
		// The callers that were just answered run first: their next items go
		// with this request, and do not have to wait for its end.
		runtime.Gosched()
		list := b.take()
		if list == nil {
			return
		}
		b.sendAll(list)
		for _, a := range list {
			close(a.done)
		}
	}
}

// take returns what goes with the next request, or nil if nothing is waiting.
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
	b.waiting = b.waiting[n:]
	if len(list) == 0 {
		b.waiting = nil
		b.sending--
	}
	return list
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
