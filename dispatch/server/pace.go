package server

import (
	"context"
	"sync"
	"time"
)

// A pace spreads what comes faster than it can be served without harm to
// others: of each key burst at once, and from then on one in every interval. To
// wait is better here than to be refused, since whoever is refused asks again.
type pace[K comparable] struct {
	burst int
	every time.Duration

	mu   sync.Mutex
	next map[K]time.Time // when the next one is due, by key
}

// maxPaced is how many keys are kept before those that are due are dropped.
const maxPaced = 1024

// wait waits until it is key's turn, or ctx ends.
func (p *pace[K]) wait(ctx context.Context, key K) {
	sleep(ctx, p.charge(key))
}

// charge counts one more of key in, and says how long it has to wait.
func (p *pace[K]) charge(key K) time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		p.next = make(map[K]time.Time)
	}
	if len(p.next) >= maxPaced {
		for k, at := range p.next {
			if at.Before(now) {
				delete(p.next, k)
			}
		}
	}
	next := p.next[key]
	if next.Before(now) {
		next = now
	}
	p.next[key] = next.Add(p.every)
	return next.Sub(now) - time.Duration(p.burst)*p.every
}

// owed is how long one more of key would have to wait.
func (p *pace[K]) owed(key K) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	next, ok := p.next[key]
	if !ok {
		return 0
	}
	return time.Until(next) - time.Duration(p.burst)*p.every
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
