package server

import (
	"context"
	"sync"
	"time"
)

// A pace spreads requests that arrive faster than they can be served without
// harming others. For each key it admits burst at once, and then one in each
// interval. Requests wait and are not refused, because a refused client would
// only ask again.
type pace[K comparable] struct {
	burst int
	every time.Duration

	mu   sync.Mutex
	next map[K]time.Time // when the next one is due
}

// maxPaced is the number of keys from which on those that are due are dropped.
const maxPaced = 1024

// wait waits until key may continue, or ctx ends.
func (p *pace[K]) wait(ctx context.Context, key K) {
	sleep(ctx, p.charge(key))
}

// charge counts one more request of key, and returns how long it has to wait.
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

// owed returns how long one more request of key would have to wait.
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
