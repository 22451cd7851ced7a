package client

import (
	"context"
	"sync"
)

// A combiner sends the requests of several goroutines together: what arrives
// during a request goes with the next one. If no other goroutine calls, a call
// is sent at once.
type combiner[T interface{ size() int }, R any] struct {
	c    *Client
	send func(ctx context.Context, list []T) ([]R, error)

	mu      sync.Mutex
	waiting []*asked[T, R]
	sending int
}

// Bounds of a request.
const (
	maxTogether      = 100
	maxTogetherBytes = 2 << 20
	maxUnderWay      = 2 // one can be prepared while another is answered
)

type asked[T, R any] struct {
	what   T
	answer R
	err    error
	done   chan struct{}
	gone   bool // its caller no longer waits
}

func (b *combiner[T, R]) init(c *Client, send func(context.Context, []T) ([]R, error)) {
	b.c, b.send = c, send
}

// do sends one item and returns its answer. If ctx ends first, the item is not
// sent, or it is unknown whether it took effect.
func (b *combiner[T, R]) do(ctx context.Context, what T) (answer R, err error) {
	a := &asked[T, R]{what: what, done: make(chan struct{})}
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

func (b *combiner[T, R]) run() {
	for {
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
func (b *combiner[T, R]) take() (list []*asked[T, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bytes, n := 0, 0
	for _, a := range b.waiting {
		if len(list) == maxTogether || len(list) > 0 && bytes+a.what.size() > maxTogetherBytes {
			break
		}
		n++
		if !a.gone {
			bytes += a.what.size()
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
func (b *combiner[T, R]) sendAll(list []*asked[T, R]) {
	items := make([]T, len(list))
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
