package client

import (
	"context"
	"sync"
)

// A combiner sends what several goroutines ask for together: what comes while a request
// is under way goes with the next. With nobody else about, a call goes at once.
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
	maxUnderWay      = 2 // while one is answered, another is made ready
)

type asked[T, R any] struct {
	what   T
	answer R
	err    error
	done   chan struct{}
	gone   bool // nobody waits for it
}

func (b *combiner[T, R]) init(c *Client, send func(context.Context, []T) ([]R, error)) {
	b.c, b.send = c, send
}

// do sends one, and returns its answer. If ctx ends before that it is not sent, or it is
// not known whether it had its effect.
func (b *combiner[T, R]) do(ctx context.Context, what T) (answer R, err error) {
	a := &asked[T, R]{what: what, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, a)
	if b.sending < maxUnderWay {
		b.sending++
		go b.run() // ends when nothing waits
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

// take gives what goes with the next request; nil: there is nothing.
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

// sendAll sends a request. If one of several makes it be refused, each is sent alone, so
// that nobody is refused for another.
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
